"""The objects of a table: loaded from their keys and verified, or stored."""
