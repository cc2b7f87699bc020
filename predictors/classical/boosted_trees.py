"""LightGBM's trees without LightGBM: its import brings pandas and scikit-learn along, 100 MiB in every controller.

Reads the text that LightGBM writes of a model, and sums the leaves in its order: the same numbers to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mark.predictors.expert import Floats, Ints

CATEGORICAL, DEFAULT_LEFT, MISSING = 1, 2, 12
"""Bits of a split's `decision_type`: its kind, where a missing value goes, and what counts as missing."""
MISSING_IS_NAN = 8
"""Of the bits in MISSING: NaN. 0: nothing is missing, and NaN is zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Numerical splits of a model's trees. Those of tree t begin at `splits[t]`, its leaves at `leaves[t]`.

    children: shape (2, splits), the next split on the left and on the right, counted within the tree; a negative n
    is leaf -1 - n.
    """

    splits: Ints
    leaves: Ints
    feature: Ints
    threshold: Floats
    decision: Ints
    children: Ints
    value: Floats

    def predict(self, rows: Floats) -> Floats:
        """The model's answer to each row. rows: shape (rows, features)."""
        return _sums(
            rows, self.splits, self.leaves, self.feature, self.threshold, self.decision, self.children, self.value
        )


def read_trees(model: str) -> Trees:
    """The trees in LightGBM's text of a regression. Errors: ValueError where they are of a kind not read here."""
    parts = [_fields(part) for part in model.partition("end of trees")[0].split("\nTree=")[1:]]
    splits = [len(part.get("split_feature", "").split()) for part in parts]
    decision = _all(parts, "decision_type", np.int64)
    if (decision & CATEGORICAL).any() or not np.isin(decision & MISSING, (0, MISSING_IS_NAN)).all():
        raise ValueError("splits by category, or by zeros that are missing")
    if any(part.get("is_linear", "0") != "0" for part in parts):
        raise ValueError("linear trees")
    leaves = [len(part["leaf_value"].split()) for part in parts]
    return Trees(
        splits=np.concatenate(([0], np.cumsum(splits))).astype(np.int64),
        leaves=np.concatenate(([0], np.cumsum(leaves))).astype(np.int64),
        feature=_all(parts, "split_feature", np.int64),
        threshold=_all(parts, "threshold", np.float64),
        decision=decision,
        children=np.stack([_all(parts, side, np.int64) for side in ("left_child", "right_child")]),
        value=_all(parts, "leaf_value", np.float64),
    )


def _fields(part: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in part.splitlines() if "=" in line)


def _all(parts: list[dict[str, str]], key: str, kind: type[np.generic]) -> NDArray[Any]:
    return np.array([float(word) for part in parts for word in part.get(key, "").split()]).astype(kind)


@njit(cache=True)
def _sums(
    rows: Floats,
    splits: Ints,
    leaves: Ints,
    feature: Ints,
    threshold: Floats,
    decision: Ints,
    children: Ints,
    value: Floats,
) -> Floats:  # pragma: no cover
    found = np.zeros(len(rows))
    for row in range(len(rows)):
        for tree in range(len(splits) - 1):
            node = 0 if splits[tree + 1] > splits[tree] else -1
            while node >= 0:
                at = splits[tree] + node
                seen = rows[row, feature[at]]
                if np.isnan(seen) and decision[at] & 12 == 8:
                    goes_left = decision[at] & 2 != 0
                else:
                    goes_left = (0.0 if np.isnan(seen) else seen) <= threshold[at]
                node = children[0 if goes_left else 1, at]
            found[row] += value[leaves[tree] - 1 - node]
    return found
