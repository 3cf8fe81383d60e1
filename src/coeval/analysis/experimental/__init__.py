"""Inference that is tried here and not yet established: what it says is labelled experimental."""
