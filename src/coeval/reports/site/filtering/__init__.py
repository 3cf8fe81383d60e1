"""What the page computes of chosen scores, in the browser."""
