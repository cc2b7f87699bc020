"""Prometheus' text format, rendered from plain counters when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render_metric(
    name: str, kind: Literal["counter", "gauge"], text: str, samples: Iterable[tuple[Labels, float]]
) -> str:
    """One metric with its help line and a line for each set of labels."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(labels)} {value:g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def render_histogram(
    name: str,
    text: str,
    samples: Iterable[tuple[Labels, Mapping[int, int], float]],
    *,
    bin_s: float,
    edges_s: tuple[float, ...],
) -> str:
    """A histogram from finer bins: for each set of labels the count by bin, and the sum of all values."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
    for labels, bins, total_s in samples:
        for edge in edges_s:
            below = sum(count for place, count in bins.items() if (place + 1) * bin_s <= edge + bin_s / 2)
            lines.append(f"{name}_bucket{_labels({**labels, 'le': f'{edge:g}'})} {below}")
        count = sum(bins.values())
        lines.append(f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {count}")
        lines.append(f"{name}_sum{_labels(labels)} {total_s:.6f}")
        lines.append(f"{name}_count{_labels(labels)} {count}")
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"
