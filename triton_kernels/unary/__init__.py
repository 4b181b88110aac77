"""What activation and gelu share: kernels of any activation of every element."""
