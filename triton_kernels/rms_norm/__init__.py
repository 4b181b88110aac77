"""Root mean square normalisation of every row of a matrix, and its backward."""
