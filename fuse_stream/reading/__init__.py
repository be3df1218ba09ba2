"""One snapshot: found in the history, and its rows."""
