"""Results in other tools' formats: read as output folders, and written for their readers."""
