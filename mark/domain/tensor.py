"""The names and shapes of what a model takes and gives (Open Inference Protocol v2)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input or output. shape: -1 stands for any size; the first dimension is the batch."""

    name: str
    datatype: str
    shape: tuple[int, ...]
