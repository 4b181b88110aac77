"""The Gaussian error linear unit, exact or by its tanh approximation, and its backward."""
