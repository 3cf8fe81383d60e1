"""`coeval sweep`: many checkpoints of a training run."""
