"""The objects of a table: what is stored under which key, loaded and verified."""
