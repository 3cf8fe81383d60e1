"""Asking many requests at once, at a lower price: jobs that a provider does within a day."""
