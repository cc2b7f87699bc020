"""The cost report as a mail."""
