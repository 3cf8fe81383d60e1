"""What the reports of evaluations and of comparisons say."""
