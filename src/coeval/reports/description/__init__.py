"""What an experiment will be, before it runs."""
