"""A small model of the protocol: every order of events of a few actors on one store."""
