"""The Triton side: one file per op, the mirror of the file of the same name in csrc."""
