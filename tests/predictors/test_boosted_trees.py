"""Our reader of LightGBM's trees gives what LightGBM gives, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from lightgbm import Booster, Dataset, train

from mark.predictors.classical.boosted_trees import read_trees

QUIET = {"objective": "quantile", "alpha": 0.9, "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 20}


def _rows(seed: int, count: int = 3000) -> np.ndarray:
    """Some are whole numbers, some are missing."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, 4)) * 2
    rows[: count // 2] = np.round(rows[: count // 2])
    return rows


def _model(rows: np.ndarray, **more: object) -> Booster:
    wanted = rows[:, 0] + np.where(np.nan_to_num(rows[:, 1]) > 0, 3.0, rows[:, 2])
    return train({**QUIET, **more}, Dataset(rows, label=np.nan_to_num(wanted)), 30)


@pytest.mark.parametrize("leaves", [2, 5, 31])
@pytest.mark.parametrize("missing", [0.0, 0.1], ids=["whole", "with gaps"])
def test_answers_are_lightgbms(leaves, missing):
    rows, unseen = _rows(1), _rows(2)
    for each in (rows, unseen):
        each[np.random.default_rng(3).random(each.shape) < missing] = np.nan
    model = _model(rows, num_leaves=leaves)

    found = read_trees(model.model_to_string()).predict(unseen)

    assert np.array_equal(found, model.predict(unseen, num_threads=1))


def test_a_tree_that_is_a_single_leaf_counts():
    rows = np.ones((50, 4))
    model = train(QUIET, Dataset(rows, label=np.full(50, 7.0)), 3)

    assert np.array_equal(read_trees(model.model_to_string()).predict(rows), model.predict(rows))


def test_splits_that_are_not_read_are_refused():
    model = _model(_rows(1), zero_as_missing=True)

    with pytest.raises(ValueError, match="zeros that are missing"):
        read_trees(model.model_to_string())
