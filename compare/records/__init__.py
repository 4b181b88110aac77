"""Runs that are kept in the repository, and which are of the code that is there."""
