"""The files of a Spark checkpoint: read, cut, copied and made again. Nothing here knows a table."""
