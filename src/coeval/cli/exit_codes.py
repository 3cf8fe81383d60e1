"""The exit codes that have a name; importing this loads nothing."""

UNAVAILABLE = 2
INTERRUPTED = 130
