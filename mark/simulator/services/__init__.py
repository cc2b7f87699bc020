"""Replays of several models together, and what they share."""
