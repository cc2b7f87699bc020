"""Replays of quality-aware schedulers on a fixed pool of devices, and the training of the learned one."""
