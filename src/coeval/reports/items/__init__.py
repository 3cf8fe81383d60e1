"""The items behind the numbers: found, read whole, chosen for a page."""
