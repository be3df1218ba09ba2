"""Conditions on rows: SQL text read, bound to columns, and answered by values and by statistics."""
