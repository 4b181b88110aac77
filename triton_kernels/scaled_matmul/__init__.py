"""A product of matrices of 8-bit floats, with scales."""
