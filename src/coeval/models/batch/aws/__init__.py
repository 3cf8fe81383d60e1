"""Amazon's batch interface, and the storage that it works on."""
