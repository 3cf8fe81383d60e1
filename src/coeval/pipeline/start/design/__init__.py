"""A design that teachers propose, as a file to edit: phases 1–2 without the run."""
