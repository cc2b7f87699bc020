"""Settings of the vanilla LSTM and its training; without torch, so that a cache can be read without it."""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.demand import HORIZON

WINDOW = 60
"""Units that one forecast looks at: as far back as it looks ahead (P_w). The paper does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmSettings:
    """Hyper-parameters. `held_out` is the share of the history, its end, that decides when training stops.

    Chosen among nine by the error on day 3 of the Twitter trace after days 1-2, and on the last two of ten days
    of worldcup98 (rows 33270-47670); twice the state or the rate gained nothing that held on both. Training stops
    after `patience` epochs in a row that did not lower the held-out error.
    """

    window: int = WINDOW
    horizon: int = HORIZON
    hidden: int = 32
    batch: int = 128
    epochs: int = 30
    learning_rate: float = 2e-3
    patience: int = 5
    held_out: float = 0.1
