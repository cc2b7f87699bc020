"""A service on this machine: its processes, its folder, its ports, and who may talk to it."""
