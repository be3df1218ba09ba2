"""A second reader of tables, written from docs/format.md alone."""
