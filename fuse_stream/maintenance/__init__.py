"""Background optimisation: big blocks, short metadata, and nothing that nobody needs."""
