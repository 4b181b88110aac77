"""What the two compilers made of an op: PTX and SASS, parsed, counted and compared."""
