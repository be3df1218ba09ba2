"""What the table costs, measured against plain Spark in one session."""
