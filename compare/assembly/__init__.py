"""PTX and SASS as text: lists of instructions, what kinds they are, what differs."""
