"""A running service: its page, table, server, and the report of a rehearsal."""
