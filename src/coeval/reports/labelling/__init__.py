"""Answers that people label: in a browser, blind, or in a sheet that is read back."""
