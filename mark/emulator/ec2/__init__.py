"""The emulated EC2: its API, and instances as processes of this machine."""
