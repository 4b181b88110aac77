"""Other people's files, right and wrong, as they come."""
