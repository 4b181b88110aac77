"""The implementations that are compared, and what they are called in a report."""

BACKENDS = ("cuda", "cuda_inline", "triton")  # ours
DEFAULT_BACKENDS = ("cuda", "triton")
PEERS = (
    *("torch", "torch.compile", "unfused", "cublaslt", "liger", "quack", "flash-attn"),
)

NAMES = {
    "cuda": "CUDA",
    "cuda_inline": "CUDA inline",
    "triton": "Triton",
    "torch": "PyTorch",
    "torch.compile": "torch.compile",
    "unfused": "PyTorch unfused",
    "cublaslt": "cuBLASLt epilogue",
    "liger": "Liger",
    "quack": "quack",
    "flash-attn": "FlashAttention",
}
