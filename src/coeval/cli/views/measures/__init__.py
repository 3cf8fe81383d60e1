"""A run's measures, on a terminal and as files."""
