"""`coeval analyze`, and what it writes."""
