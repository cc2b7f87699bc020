"""A running service: its page and table, the server of the page, and the report of a rehearsal."""
