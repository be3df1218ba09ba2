"""Names for snapshots: branches, tags, and clones."""
