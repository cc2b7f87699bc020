from __future__ import annotations

import pytest

from mark.domain.figures import figure


@pytest.mark.parametrize(
    ("value", "said"),
    [(30_180.2, "30,180"), (42.613, "42.61"), (1000, "1,000"), (0.0, "0"), (1.2e-5, "0.000012"), (-0.5, "-0.5")],
)
def test_a_figure_has_no_exponent(value, said):
    assert figure(value) == said
