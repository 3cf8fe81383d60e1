"""What a run will cost and take: calls × tokens × prices, with a range for what is not known yet."""
