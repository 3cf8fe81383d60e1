"""Simulated models: no key, network or GPU needed, and their true skill is known."""
