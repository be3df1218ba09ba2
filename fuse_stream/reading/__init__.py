"""Reading one snapshot: find it in a branch's history, and scan its rows."""
