"""The commands, one module each; `cli.py` puts them together."""
