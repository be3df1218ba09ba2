"""Blocks written anew: merged and sorted, the same rows."""
