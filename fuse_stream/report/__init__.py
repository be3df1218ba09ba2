"""A table's life as one page of HTML: what is known of it, its health, the charts, the page."""
