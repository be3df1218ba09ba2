"""Readers of change events: messages of CDC systems become rows of one shape."""
