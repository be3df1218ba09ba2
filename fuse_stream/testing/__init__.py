"""Stores that forget, fail and race on cue, for the tests of this package and of its users."""
