"""Batches on one instance: whose is next, how long each takes, when one hangs; stream slots, CPU credits."""
