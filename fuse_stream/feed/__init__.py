"""The change feed: what changed from one snapshot to the next, and the position of a reader."""
