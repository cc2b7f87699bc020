"""Rollouts and the checks before them."""
