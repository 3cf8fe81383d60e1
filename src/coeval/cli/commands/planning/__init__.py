"""Commands before a run: what it costs, what it will be, and what teachers propose for it."""
