"""From judged results to a published, versioned site."""

__version__ = "0.1.0"
