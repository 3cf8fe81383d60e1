"""Charts: their specifications, what each shows, how they are drawn, and their colours."""
