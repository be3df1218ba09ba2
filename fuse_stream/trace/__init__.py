"""When a row came, and who brought it."""
