"""Expire old versions, and delete the files that nothing needs."""
