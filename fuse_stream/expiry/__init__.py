"""What history is kept, and the files that nothing needs."""
