"""What the vanilla LSTM is made and trained with; without torch, so that a cache can be read without it."""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.demand import HORIZON

WINDOW = 60
"""Units that one forecast looks at: as far back as it looks ahead (P_w). The paper does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmSettings:
    """Hyper-parameters. `held_out` is the share of the history, its end, that decides when training stops."""

    window: int = WINDOW
    horizon: int = HORIZON
    hidden: int = 32
    batch: int = 128
    epochs: int = 30
    learning_rate: float = 2e-3
    patience: int = 4
    held_out: float = 0.1
