"""The background process that compacts, reclusters, expires and vacuums tables."""
