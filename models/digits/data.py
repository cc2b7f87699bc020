"""scikit-learn's digits (UCI, Alpaydin and Kaynak 1998), parted into learned and held out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

EVERY = 5
"""Each fifth image is held out."""


def digits(*, held_out: bool) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images of shape (n, 8, 8) and their labels (n,): those held out, or those to learn from."""
    bunch = load_digits()
    chosen = (np.arange(len(bunch.target)) % EVERY == 0) == held_out
    return bunch.images[chosen].astype(np.float32), bunch.target[chosen].astype(np.int64)
