"""The live service on this machine: what it serves, where it stands, and how it is watched."""
