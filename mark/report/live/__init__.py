"""A running service: its page and table, and the server of the page."""
