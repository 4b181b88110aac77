"""Cross entropy of every row of a matrix of logits and the class that it should name."""
