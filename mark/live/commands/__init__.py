"""What the commands of a running service do: up, down, load, pause, feed, chaos, explain, demo."""
