"""What several ops share: the mirror of csrc/common."""
