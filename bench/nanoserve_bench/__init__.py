"""A benchmark that refuses unsound comparisons."""
