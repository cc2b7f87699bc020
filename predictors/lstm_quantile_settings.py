"""What the quantile LSTM is made and trained with; without torch, so that a cache can be read without it."""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.demand import HORIZON


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileSettings:
    """Hyper-parameters. `held_out` is the share of the history, its end, that decides which epoch is kept.

    Each epoch sees a new draw of `share` of the origins: neighbours differ by a minute. A short history gets
    more epochs, until there are `least_batches` of them. Training stops after `patience` epochs in a row that
    did not lower the held-out loss. `floor_share` of the mean rate is added before the log: what an empty minute
    counts as.
    """

    window: int = 120
    horizon: int = HORIZON
    hidden: int = 64
    width: int = 64
    batch: int = 128
    epochs: int = 10
    share: float = 0.5
    least_batches: int = 300
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    patience: int = 4
    held_out: float = 0.1
    floor_share: float = 0.02
    seeds: int = 3
