"""A linear unit gated by SiLU, and its backward."""
