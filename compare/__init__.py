"""The microscope: puts the two implementations of an op side by side."""
