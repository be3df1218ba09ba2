"""Going back: names for snapshots, undoing commits, Spark's checkpoints, and what happened when."""
