"""Deliberately bad kernels and cheats, to test that the suite rejects them.

Each is a few lines that write an op's result wrongly, or write what they should not,
with a sentence on what is wrong. Beside it stands which inputs show it and how the
harness has to put it. tests/test_bad_kernels.py puts them in the place of a backend,
one after the other, and expects exactly that; there, the real backends are accepted.

A new one is a few lines in one of these files, or a new file.
"""
