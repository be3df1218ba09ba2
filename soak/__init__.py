"""The soak: writers, followers and all maintenance together, for half an hour."""
