"""Adds two tensors, either of which may be broadcast."""
