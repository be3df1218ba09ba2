"""The service: optimisation that goes on by itself, beside a stream or as a process of its own."""
