"""The commands of `python -m compare`, a module each; a new command is a new module.

A module has SUMMARY, a sentence; `add_options(parser)`; and `run(options)`, which
returns the exit code. What takes long to import, torch above all, is imported in `run`.
"""
