"""A sweep under way."""
