"""Cross entropy of rows of logits and the classes that they should name."""
