"""Commits that change rows: delete, update, upsert and replicate; the key of a table."""
