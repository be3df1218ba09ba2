"""Spark's interfaces for connectors, implemented by Python objects of the driver."""
