"""The costs of a table, measured against plain Spark in one session."""
