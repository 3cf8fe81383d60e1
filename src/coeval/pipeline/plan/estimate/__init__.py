"""What a run will cost: its prompts as they will be, their unknown lengths, and who is asked how often."""
