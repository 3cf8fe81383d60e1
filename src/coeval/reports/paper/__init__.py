"""A report on paper."""
