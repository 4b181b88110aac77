"""A linear unit gated by GELU, exact or by its tanh approximation, and its backward."""
