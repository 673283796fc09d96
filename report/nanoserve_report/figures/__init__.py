"""The figures: one module each, pure (a sweep, a section or a study in, a `Drawing` out).

They read estimates of sound cells, pairs and doublings only; what was refused or not measured is
drawn as a hole with its reason.
"""
