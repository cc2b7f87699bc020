"""Spans of a request on its way through gateway, agent and model; without tracing a check for None."""
