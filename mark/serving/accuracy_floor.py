"""Clients' accuracy floors and pinned variants: headers, the parameter of an Open Inference request, limits."""

from __future__ import annotations

import math
from collections.abc import Mapping

import orjson

from mark.domain.errors import Misconfigured, unknown
from mark.protocols.oip.bodies import BadRequest
from mark.service_spec import ServedModel

HEADER, PARAMETER = "x-mark-accuracy-floor", "accuracy_floor"
VARIANT = b"x-mark-variant"
"""Header of answers: the variant that gave them; of requests: the one that is to answer."""
MAX_NAME = 80
"""Characters of an unknown variant's name that an error repeats."""
_QUOTED = b'"accuracy_floor"'
_INVALID = "must be a share of right answers between 0 and 1"


def floor_of(headers: Mapping[str, bytes], served: ServedModel) -> float:
    """The floor that the header sets; 0 without one. Errors: BadRequest where no variant keeps it."""
    text = headers.get(HEADER)
    if text is None:
        return 0.0
    try:
        floor = float(text)
    except ValueError:
        floor = math.nan
    return _checked(floor, HEADER, served)


def stricter_floor(floor: float, body: bytes, header_length: int, route_shape: str, served: ServedModel) -> float:
    """That floor, or the one among the body's parameters where it is higher. Errors: as `floor_of`.

    Bodies are looked into where the model has variants and the protocol has parameters. JSON that cannot be read
    sets no floor: the model's server refuses it.
    """
    if served.variant_serving is None or route_shape != "oip":
        return floor
    text = body[:header_length] if header_length else body
    if _QUOTED not in text:
        return floor
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return floor
    parameters = document.get("parameters") if isinstance(document, dict) else None
    own = parameters.get(PARAMETER) if isinstance(parameters, dict) else None
    if own is None:
        return floor
    number = float(own) if isinstance(own, int | float) and not isinstance(own, bool) else math.nan
    return max(floor, _checked(number, f"the parameter {PARAMETER}", served))


def pinned_variant(headers: Mapping[str, bytes], floor: float, served: ServedModel) -> bytes:
    """The variant that the header names; empty without one. Errors: BadRequest where it may not answer.

    floor: the request's own least accuracy, which a variant that is named has to keep as well.
    """
    asked, serving = headers.get(VARIANT.decode(), b""), served.variant_serving
    if not asked or serving is None:
        return b""
    name = asked.decode("latin-1")
    try:
        if name not in serving.table.names:
            raise unknown(f"variant of {served.name}", name[:MAX_NAME], serving.table.names)
        number = serving.pinned(name)
    except Misconfigured as error:
        raise BadRequest(str(error)) from None
    variant = serving.table.variants[number]
    if variant.accuracy < floor:
        raise BadRequest(
            f"{variant.name} answers {variant.accuracy:g} right, below the request's own floor of {floor:g}"
        )
    return asked


def _checked(floor: float, name: str, served: ServedModel) -> float:
    """The floor, if some variant keeps it."""
    if not 0 <= floor <= 1:
        raise BadRequest(f"{name} {_INVALID}")
    if served.variant_serving is None:
        raise BadRequest(f"{served.name} has no variants: leave {name} out")
    try:
        served.variant_serving.request_floor(floor)
    except Misconfigured as error:
        raise BadRequest(str(error)) from None
    return floor
