"""What implementations are called in a report."""

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
