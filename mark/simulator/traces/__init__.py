"""Traces as people have them and as generators draw them, and what they look like in numbers."""
