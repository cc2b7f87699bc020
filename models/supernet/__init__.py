"""A supernet for handwritten digits: one network whose parts switch on and off in place, from exact to fast.

`Supernet` is what `mark supernet train` takes: an ordinary network, which of its parts are elastic, and examples.
A user's own class needs no more than these three (docs/papers.md). torch is imported when a network is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mark.domain.supernet import ElasticSpace
from mark.models.supernet.depth import BLOCKS

if TYPE_CHECKING:
    from torch import nn


class Supernet:
    """scikit-learn's digits. `input`: shape (n, 8, 8), 0 is paper, 16 is ink."""

    space = ElasticSpace(
        stages=("stage1", "stage2"),
        depths=(2, 3, BLOCKS),
        inner=(("stage*.reduce", "stage*.mix"),),
        expands=(0.5, 0.75, 1.0),
        outer=(("stem.0", "stage*.restore", "stage*.shortcut.0"),),
        widths=(0.625, 0.75, 1.0),
    )

    def network(self) -> nn.Module:
        """The untrained network."""
        from mark.models.supernet.network import ResidualNetwork  # noqa: PLC0415 - torch takes a second to import

        return ResidualNetwork()

    def examples(self, *, held_out: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        """Images and their labels: those to judge by, or those to learn from and choose by."""
        from mark.models.digits.data import digits  # noqa: PLC0415 - scikit-learn takes a second to import

        images, labels = digits(held_out=held_out)
        return np.ascontiguousarray(images), labels
