"""Writers of tables: one for each medium that is text."""
