"""Sums over one dimension of a tensor."""
