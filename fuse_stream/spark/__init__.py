"""The sink, batch reads and writes, and the stream source: the only code that imports pyspark."""
