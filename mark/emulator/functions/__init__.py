"""The emulated Lambda: its API, a pool of environments, and its runtime as processes."""
