"""A service on this machine: processes, folder, ports, clock."""
