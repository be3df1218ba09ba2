"""Break tables on purpose, by the hundred thousand faults, and count what was lost: nothing."""
