"""Bad Triton kernels, for ../interpreted.py."""
