"""A grid of settings over traces: its cells, where they run, what is kept."""
