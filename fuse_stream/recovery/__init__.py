"""Going back: names for snapshots, undoing commits, and finding out what happened."""
