"""MArk: serve machine-learning models within a latency objective at the least cost."""

__version__ = "0.1.0"
