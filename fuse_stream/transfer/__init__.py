"""Ways into and out of a table: whole copies, and Parquet files that become a table."""
