"""What a sweep is to do, and what of it is done."""
