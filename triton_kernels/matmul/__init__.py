"""A product of matrices, with what follows it fused: a bias and an activation."""
