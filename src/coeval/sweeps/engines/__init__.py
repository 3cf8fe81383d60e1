"""Where the legs of a sweep run."""
