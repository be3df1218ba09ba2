"""Streams put back: what a Spark checkpoint holds, and how another one is made of it."""
