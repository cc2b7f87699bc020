"""Policies and their parts: bundles by name, a team's overrides, and the supply that can be rented."""
