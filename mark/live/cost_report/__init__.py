"""`mark report`: from a running service or its archive to a report that is printed, written and mailed."""
