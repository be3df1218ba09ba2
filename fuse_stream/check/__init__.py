"""Checks that only read: `fsck` finds damage, `audit` compares a table with a checkpoint."""
