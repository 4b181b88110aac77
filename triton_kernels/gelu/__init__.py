"""The Gaussian error linear unit, exact or approximated by tanh, and its backward."""
