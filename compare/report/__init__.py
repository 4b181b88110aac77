"""Reports: what was found out, and how it is written down and shown."""
