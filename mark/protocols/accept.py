"""Accept headers (RFC 9110, 12.4.2): what a client takes, each with its weight."""

from __future__ import annotations


def accept_weights(header: str) -> dict[str, float]:
    """The names of an Accept or Accept-Encoding header in lower case, with weights from 0 (refused) to 1.

    A weight that cannot be read is 0: the name is listed, but not as accepted.
    """
    weights: dict[str, float] = {}
    for entry in header.lower().split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        given = {key.strip(): value for key, _, value in (one.partition("=") for one in parameters)}
        weights[name] = _weight(given.get("q", "1"))
    return weights


def _weight(value: str) -> float:
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
