"""Erase rows: find them everywhere, rewrite their blocks, and say what still holds them."""
