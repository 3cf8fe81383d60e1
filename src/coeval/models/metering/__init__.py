"""Accounts of models, budgets and quotas."""
