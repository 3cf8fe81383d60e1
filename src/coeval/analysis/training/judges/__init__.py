"""The same answers judged by different judges: how far the judges agree."""
