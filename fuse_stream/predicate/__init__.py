"""Predicates on rows: parsed from SQL, bound to a schema, evaluated on rows and on statistics."""
