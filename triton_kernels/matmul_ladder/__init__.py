"""The steps from a definition to matmul.py, each a kernel of its own."""
