"""Which versions are kept, and the deletion of files that nothing needs."""
