"""Settings of the quantile LSTM and its training; without torch, so that a cache can be read without it."""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.demand import HORIZON


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileSettings:
    """Hyper-parameters, chosen on worldcup98 rows 33270-54870 and Twitter days 1-7.

    `floor_share` of the mean rate is added before the log: what an empty minute counts as. The loss is of rates to
    the power of `loss_power`: at 1 floods are all that counts, near 0 nights count like days. The losses of a lead
    are divided by how far apart its outcomes lie, to the power of `evenness`. `dropout` is of the head.

    Each epoch sees a new draw of `share` of the origins: neighbours differ by a minute. A short history gets more
    epochs, until there are `least_batches` of them. The linear part, which starts at its best, moves at
    `linear_share` of the learning rate. `held_out` is the share of the history, its end, that decides which epoch
    is kept; training stops after `patience` epochs in a row that did not lower its loss.
    """

    window: int = 120
    horizon: int = HORIZON
    hidden: int = 32
    width: int = 64
    batch: int = 128
    epochs: int = 10
    share: float = 0.5
    least_batches: int = 300
    learning_rate: float = 3e-3
    linear_share: float = 0.1
    weight_decay: float = 0.01
    dropout: float = 0.4
    loss_power: float = 0.75
    evenness: float = 0.7
    patience: int = 4
    held_out: float = 0.1
    floor_share: float = 0.02
    seeds: int = 3
