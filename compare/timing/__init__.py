"""How long implementations take on a GPU, and what there is to reach."""
