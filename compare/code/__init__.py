"""The PTX and SASS of both compilers: made, parsed, counted and compared."""
