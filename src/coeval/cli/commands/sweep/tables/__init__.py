"""What the commands of `coeval sweep` print."""
