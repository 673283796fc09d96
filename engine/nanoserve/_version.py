"""The version of nanoserve, as its pyproject.toml has it."""

__version__ = "0.1.0"
