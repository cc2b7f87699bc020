"""Bills, usage, tallies, the load history."""
