"""Says how often the shipped network is right on held-out digits: `python -m mark.models.digits.evaluate`."""

from __future__ import annotations

import sys

from mark.models.digits import Digits
from mark.models.digits.data import digits


def accuracy(model: Digits) -> float:
    """Share of the held-out images that get their own label."""
    images, labels = digits(held_out=True)
    return float((model.predict({"image": images})["label"] == labels).mean())


def report() -> None:
    """Print it."""
    images, _ = digits(held_out=True)
    sys.stdout.write(f"digits: {accuracy(Digits()):.2%} of {len(images)} held-out images are labelled right\n")


if __name__ == "__main__":
    report()
