"""The parsed head of an inference request: model, path at the model's server, deadline."""

from __future__ import annotations

from typing import NamedTuple

from mark.protocols.oip.bodies import BadRequest
from mark.serving.accuracy_floor import floor_of, pinned_variant
from mark.serving.gateway.clients import ClientUse
from mark.serving.gateway.model_router import ModelRouter
from mark.serving.gateway.request import ONLY_VARIANT, InferenceRequest
from mark.serving.inference_headers import MAX_TYPE_BYTES, Headers, accept_of, header_length, size_of
from mark.serving.routes import Route

MAX_ID_BYTES = 128
MAX_TRACE_BYTES = 127


class ParsedHead(NamedTuple):
    """Everything that requests with the same head share; the values that vary are `http/head_cache.VARYING`."""

    router: ModelRouter
    shape: str
    path: bytes
    content_type: bytes
    header_length: int
    #: the client sends a traceparent
    has_trace: bool
    variant: bytes
    #: seconds from arrival to the deadline
    allowed_s: float
    #: the client chooses the request's id
    has_id: bool
    accept: bytes
    #: in items; 0: the request's own rows, which its body has
    size: int
    #: least accuracy of the variant that may answer, 0 for any
    accuracy_floor: float
    #: the client's use of the model; None where the service has no clients
    use: ClientUse | None
    #: the model's version that the path names
    version: bytes


def parse_head(request: InferenceRequest, route: Route, router: ModelRouter, use: ClientUse | None) -> ParsedHead:
    """Parse the head of an inference request whose body has no content coding. use: its client's, of the model.

    Errors: BadRequest.
    """
    headers = request.headers
    content_type = headers.get("content-type", b"")
    if len(content_type) > MAX_TYPE_BYTES:
        raise BadRequest(f"content-type is longer than {MAX_TYPE_BYTES} bytes")
    accept = accept_of(headers, route)
    if len(accept) > MAX_TYPE_BYTES:
        raise BadRequest(f"accept is longer than {MAX_TYPE_BYTES} bytes")
    request_id = headers.get("x-mark-request-id")
    if request_id is not None and not 0 < len(request_id) <= MAX_ID_BYTES:
        raise BadRequest(f"x-mark-request-id must have 1 to {MAX_ID_BYTES} characters")
    traceparent = headers.get("traceparent", b"")
    variant = _variant(headers, route, router)
    floor = floor_of(headers, router.served)
    path = route.forward
    if router.served.variant_serving is not None:
        variant = pinned_variant(headers, floor, router.served)
    elif variant != route.variant and route.shape == "oip":
        path = b"/v2/models/%b/versions/%b/infer" % (router.name.encode(), variant)
    return ParsedHead(
        router,
        route.shape,
        path,
        content_type,
        header_length(headers, len(request.body)),
        0 < len(traceparent) <= MAX_TRACE_BYTES,  # W3C: one that cannot be read is none
        variant,
        _allowed_s(headers, router),
        request_id is not None,
        accept,
        size_of(headers, router.largest, from_rows=_counts_rows(route, router)),
        floor,
        use,
        route.version,
    )


def _counts_rows(route: Route, router: ModelRouter) -> bool:
    return route.shape == "oip" and router.served.model.rows_are_items and not router.streams


def _allowed_s(headers: Headers, router: ModelRouter) -> float:
    """A client's deadline only tightens the objective; it is of the first byte where the objective is."""
    deadline = headers.get("x-mark-deadline-ms")
    if deadline is None:
        return router.objective_s
    if not deadline.isdigit() or len(deadline) > 9 or not (deadline_ms := int(deadline)):
        raise BadRequest("x-mark-deadline-ms must be a whole number of milliseconds from 1 to 999999999")
    return min(router.objective_s, deadline_ms / 1000 + router.served.slo.rest_s)


def _variant(headers: Headers, route: Route, router: ModelRouter) -> bytes:
    chooses = router.served.variant_serving is not None
    own = b"" if chooses else headers.get("x-mark-variant")  # checked by `pinned_variant`
    asked = own or headers.get("x-amzn-sagemaker-target-variant")
    if not asked or asked == route.variant:
        return route.variant
    if asked == ONLY_VARIANT and route.shape == "sagemaker" and not router.served.variants:
        return route.variant
    if chooses:
        raise BadRequest("the service chooses the variant of each answer; name one with x-mark-variant")
    if route.variant:
        raise BadRequest("path and header name different variants")
    name = asked.decode("latin-1")
    if name not in router.served.variants:
        known = ", ".join(router.served.variants) or "none"
        raise BadRequest(f"no variant {name[:80]!r}; known: {known}", 404)
    return asked
