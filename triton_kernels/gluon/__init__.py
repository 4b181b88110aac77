"""Variants in Gluon, which leaves to the kernel what Triton's compiler decides."""
