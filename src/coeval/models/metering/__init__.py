"""What models were sent and what that took, and where that ends."""
