"""Judging and scoring for a sweep, in one process of its own."""
