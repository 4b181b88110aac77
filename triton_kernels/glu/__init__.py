"""What geglu and swiglu share: kernels of a linear unit gated by any activation."""
