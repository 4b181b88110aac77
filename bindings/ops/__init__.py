"""One file per op: what a user calls, and the description that all else reads."""
