"""What changed from one snapshot to the next, and how far a reader has come."""
