"""Commands of a running service: up, down, load, pause, feed, chaos, explain, demo."""
