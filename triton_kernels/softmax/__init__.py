"""Softmax of every row of a matrix, and its backward."""
