"""`coeval analyze`: its names, its tables, its files."""
