"""How a model is tried before it is measured."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mark.domain.tensor import TensorSpec
from mark.offline.own_model import try_model


class WarmsUp:
    """Its first two calls take longer than all that later ones may take together."""

    inputs = outputs = (TensorSpec(name="x", datatype="FP32", shape=(-1,)),)

    def __init__(self):
        self.calls, self.now_s = 0, 0.0

    def predict(self, tensors):
        self.calls += 1
        self.now_s += 1.2 if self.calls < 3 else 0.001
        return tensors


def test_a_model_that_is_slow_while_it_warms_up_is_not_taken_for_slow(monkeypatch):
    model = WarmsUp()
    monkeypatch.setattr(try_model, "time", SimpleNamespace(perf_counter=lambda: model.now_s))
    tried = try_model.try_model(model, {"x": np.zeros(1, np.float32)})
    assert tried.first_s == pytest.approx(1.2)
    assert tried.median_s == pytest.approx(0.001)
    assert tried.fastest_s == pytest.approx(0.001)
