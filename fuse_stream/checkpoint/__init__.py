"""The files of a Spark checkpoint: read, cut, copied and rebuilt. Nothing here knows a table."""
