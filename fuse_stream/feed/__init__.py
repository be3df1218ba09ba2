"""The change feed: the changes from one snapshot to the next, and the position of a reader."""
