"""One file per op: the functions that users call, and the op's description."""
