"""The long correctness run: the engine's tokens against the reference's, on real weights.

`cases` says what is run, `records` what is kept, `session` runs it. What differs is looked into by
teacher forcing, as in a sweep: inside the reference's own noise floor it is a near-tie and
published, otherwise it is a bug and the run fails.
"""
