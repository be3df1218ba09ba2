"""Whether a table is whole, and whether it holds what a checkpoint says."""
