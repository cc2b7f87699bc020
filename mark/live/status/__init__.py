"""Status of a service: one document, and the commands that show it."""
