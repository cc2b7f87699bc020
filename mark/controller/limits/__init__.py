"""Limits of what may be launched: back-off, circuit breakers, quotas, spending. Pure."""
