import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(
    x_ptr,
    y_ptr,
    features,
    inner,  # the product of the dimensions behind the features
    eps,
    BLOCK_F: tl.constexpr,
    BLOCK_I: tl.constexpr,
):
    batch = tl.program_id(0)
    i = tl.program_id(1) * BLOCK_I + tl.arange(0, BLOCK_I)
    f = tl.arange(0, BLOCK_F)
    offsets = (batch * features + f[:, None]) * inner + i[None, :]
    mask = (f[:, None] < features) & (i[None, :] < inner)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    rms = tl.sqrt(tl.sum(x * x, axis=0) / features + eps)
    tl.store(y_ptr + offsets, x / rms[None, :], mask=mask)


class ModelNew(nn.Module):
    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.num_features = num_features
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, features = x.shape[:2]
        inner = x[0, 0].numel()
        y = torch.empty_like(x)
        BLOCK_I = 32
        grid = (batch, triton.cdiv(inner, BLOCK_I))
        rms_norm_kernel[grid](
            x, y, features, inner, self.eps,
            BLOCK_F=triton.next_power_of_2(features), BLOCK_I=BLOCK_I,
        )
        return y
