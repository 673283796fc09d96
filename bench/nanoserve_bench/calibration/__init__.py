"""What the statistics are worth: whole studies simulated from recorded noise whose truth is known.

`noise` takes the noise out of judged folders, `tape` plays it back, `study` runs one simulated
study through the project's own stopping rule, estimates and verdicts, `intervals` sets other
intervals beside Student's t, `simulate` counts, and `document` keeps the result and refuses it when
it no longer belongs to its inputs.
"""
