"""Sizes of the network that say what of it is elastic."""

from __future__ import annotations

BLOCKS, HEADS = 4, 16
