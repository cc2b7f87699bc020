"""Versions of a model at a gateway: routing to one, and shadow traffic."""
