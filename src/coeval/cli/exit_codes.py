"""The exit codes that have a name; importing this loads nothing."""

UNAVAILABLE = 2
GAPS = 3
WORSE = 4
INTERRUPTED = 130
