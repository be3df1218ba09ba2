"""What a table holds, held, and how it changed."""
