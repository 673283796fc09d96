"""A module that leaves when it is imported."""

raise SystemExit("goodbye")
