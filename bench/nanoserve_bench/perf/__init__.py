"""The engine's own benchmark: the speed table that the project holds itself to.

`goals` is the table and `arms` what is run for it, both data. `session` runs rounds and keeps what
they gave, `measure` runs one arm in one round, `records` is what is kept, `files` its only reader
and writer, `figures` turns it into ratios with intervals and verdicts, `table` prints them. The
profile of a step lies beside it (`profile`). Nothing here imports torch: what touches the
engine runs in worker processes (`systems/`).
"""
