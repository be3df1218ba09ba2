"""The handle of a table, its location, and the functions that touch more than one table."""
