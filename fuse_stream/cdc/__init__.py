"""Messages of change data capture: what they say, as rows of events. Nothing here needs Spark."""
