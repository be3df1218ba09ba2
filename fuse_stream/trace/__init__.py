"""Searches in the history: `bisect` finds the first version with a row, `blame` the commits."""
