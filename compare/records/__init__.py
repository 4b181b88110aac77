"""Runs that are kept in the repository, and whether they are of the code that is there."""
