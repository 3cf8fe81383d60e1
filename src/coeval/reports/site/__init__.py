"""A report as one file that any browser opens, without a network."""
