"""Rewriting blocks: merged and sorted, with the same rows."""
