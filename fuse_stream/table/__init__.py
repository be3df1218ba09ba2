"""The handle of a table, and the functions that open one by its location."""
