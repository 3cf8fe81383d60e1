"""What a folder holds and lacks, what it has cost, and what goes on in it: `coeval status`."""
