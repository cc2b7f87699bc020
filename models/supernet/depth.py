"""Depth of the shipped supernet."""

from __future__ import annotations

BLOCKS = 4
"""In each of the network's two stages."""
