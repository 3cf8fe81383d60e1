"""Google's batch interfaces, and the storage that one of them works on."""
