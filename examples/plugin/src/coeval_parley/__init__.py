"""An example of a package that adds a host and a benchmark to CoEval."""
