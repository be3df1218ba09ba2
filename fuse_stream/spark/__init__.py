"""Sink, batch and stream for Spark: the only part that knows it."""
