"""The background process that keeps tables in good shape, beside a stream or alone."""
