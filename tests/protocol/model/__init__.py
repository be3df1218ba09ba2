"""A small model of the protocol: every course of events of a few actors on one store."""
