"""Dropout: each element becomes 0 with probability p, the others are scaled up."""
