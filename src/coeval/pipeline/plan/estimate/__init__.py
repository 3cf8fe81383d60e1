"""Estimate the cost of a run: its prompts, the unknown lengths of replies, and the number of calls."""
