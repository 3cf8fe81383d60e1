"""A training run: many checkpoints, their figures put together, and what can be said of them."""
