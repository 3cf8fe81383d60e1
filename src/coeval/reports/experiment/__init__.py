"""What the report of a run says, section by section."""
