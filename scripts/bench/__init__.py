"""Speed, side by side with peers: `make bench`."""
