"""What a report says, without saying how it looks."""
