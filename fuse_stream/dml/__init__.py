"""Commits that change rows: delete and update."""
