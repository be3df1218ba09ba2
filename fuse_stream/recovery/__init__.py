"""Going back: names for snapshots, tables and checkpoints made whole, and telling whether they are."""
