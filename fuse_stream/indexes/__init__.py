"""Indexes: what is computed of blocks beforehand, and answers from it."""
