"""Routing table of HTTP paths: Open Inference Protocol v2, SageMaker's runtime, and Prometheus.

Every path that needs no decoding is looked up in one dictionary; a query string is ignored, percent signs are
decoded once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from mark.domain.models.versions import shown
from mark.service_spec import ServedModel, ServiceSpec


class Endpoint(Enum):
    """The endpoint that a path names."""

    INFER = "infer"
    LIVE = "live"
    READY = "ready"
    MODEL_READY = "model ready"
    SERVER = "server"
    MODEL = "model"
    METRICS = "metrics"
    CONFIG = "model config"
    STATISTICS = "statistics"
    INDEX = "repository index"


OPEN_TO_ALL = frozenset({Endpoint.LIVE, Endpoint.READY})
"""Endpoints that load balancers call without a token."""
OF_OPERATORS = frozenset({Endpoint.METRICS, Endpoint.STATISTICS, Endpoint.INDEX})
"""Endpoints that tell of all models and clients: where the service has a token, they need it."""


OF_A_MODEL: Mapping[bytes, Endpoint] = MappingProxyType(
    {
        b"": Endpoint.MODEL,
        b"/config": Endpoint.CONFIG,
        b"/stats": Endpoint.STATISTICS,
        b"/ready": Endpoint.MODEL_READY,
        b"/infer": Endpoint.INFER,
    }
)
"""Ends of the paths of a model, or of one of its versions."""
OF_A_STREAM = (b"/generate_stream", b"/generate")
"""Further ends of the paths of a model whose answers stream: Triton's generate extension."""


class Route(NamedTuple):
    """A path's endpoint and the model that it names."""

    endpoint: Endpoint
    model: str = ""
    #: path at the model's server
    forward: bytes = b""
    #: protocol of bodies and errors: oip or sagemaker
    shape: str = "oip"
    variant: bytes = b""
    #: the model's version that the path names; empty where a rollout's share chooses
    version: bytes = b""


class Routes:
    """Lookup of a service's paths."""

    def __init__(self, spec: ServiceSpec) -> None:
        self._versions: dict[str, tuple[str, ...]] = {}
        self._streaming = frozenset(served.name for served in spec.models if served.backend.streams)
        self._known: dict[bytes, Route] = {
            b"/v2/health/live": Route(Endpoint.LIVE),
            b"/v2/health/ready": Route(Endpoint.READY),
            b"/ping": Route(Endpoint.READY),
            b"/v2": Route(Endpoint.SERVER),
            b"/v2/": Route(Endpoint.SERVER),
            b"/metrics": Route(Endpoint.METRICS),
            b"/v2/models/stats": Route(Endpoint.STATISTICS),
            b"/v2/repository/index": Route(Endpoint.INDEX),
        }
        for served in spec.models:
            self._add_model(served)
        if len(spec.models) == 1:
            only = spec.models[0].name
            self._known[b"/invocations"] = Route(Endpoint.INFER, only, b"/invocations", "sagemaker")

    def set_versions(self, model: str, names: Sequence[str]) -> bool:
        """Have paths name these versions of a model, and no others; True where they are not those of before.

        A path may name a version by what people are shown of it, of which the first in `names` has it.
        """
        before = self._versions.get(model, ())
        if before == tuple(names):
            return False
        self._versions[model] = tuple(names)
        name = model.encode()
        infer = b"/v2/models/%b/infer" % name
        for segment in (segment for version in before for segment in (shown(version), version)):
            base = b"/v2/models/%b/versions/%b" % (name, segment.encode())
            for end in (*OF_A_MODEL, *OF_A_STREAM):
                self._known.pop(base + end, None)
        for version in reversed(names):
            for segment in (shown(version), version):
                base = b"/v2/models/%b/versions/%b" % (name, segment.encode())
                self._add_paths(base, model, infer, b"", version.encode())
        return True

    def versions(self, model: str) -> Sequence[str]:
        """The versions of a model that paths name beside those that it always has."""
        return self._versions.get(model, ())

    def find(self, target: bytes) -> Route | None:
        """The route of a request's target; None where there is none."""
        known = self._known.get(target)
        return known if known is not None else self._known.get(_path_of(target))

    def _add_model(self, served: ServedModel) -> None:
        name = served.name.encode()
        infer = b"/v2/models/%b/infer" % name
        self._add_paths(b"/v2/models/%b" % name, served.name, infer, b"")
        for version in versions_of(served):
            segment = version.encode()
            variant = segment if served.variants else b""
            forward = b"/v2/models/%b/versions/%b/infer" % (name, segment) if variant else infer
            self._add_paths(b"/v2/models/%b/versions/%b" % (name, segment), served.name, forward, variant)
        endpoint = b"/endpoints/%b/invocations" % name
        self._known[endpoint] = Route(Endpoint.INFER, served.name, b"/invocations", "sagemaker")

    def _add_paths(self, base: bytes, model: str, forward: bytes, variant: bytes, version: bytes = b"") -> None:
        for end, endpoint in OF_A_MODEL.items():
            to = forward if endpoint is Endpoint.INFER else b""
            self._known[base + end] = Route(endpoint, model, to, variant=variant, version=version)
        if model in self._streaming:
            for end in OF_A_STREAM:
                to = forward.removesuffix(b"/infer") + end
                self._known[base + end] = Route(Endpoint.INFER, model, to, variant=variant, version=version)


def _path_of(target: bytes) -> bytes:
    path = target.partition(b"?")[0]
    if path.startswith((b"http://", b"https://")):  # as a client asks a proxy
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return unquote_to_bytes(path) if b"%" in path else path


_NOT_SUPPORTED = (
    (
        re.compile(rb"/v1(/.*)?"),
        "the V1 inference protocol; use Open Inference Protocol v2: /v2/models/NAME/infer",
    ),
    (
        re.compile(rb"/endpoints/[^/]+/invocations-response-stream"),
        "AWS's event streams; /invocations of a model that streams answers in chunks (docs/protocols.md)",
    ),
    (re.compile(rb"/endpoints/[^/]+/async-invocations"), "asynchronous invocations; use /invocations"),
    (re.compile(rb"/v2(/models/.+)?/trace/setting"), "trace settings; requests may carry a traceparent"),
    (re.compile(rb"/v2/logging"), "log settings"),
    (re.compile(rb"/v2/(system|cuda)sharedmemory(/.*)?"), "shared memory; send tensors in the body"),
    (re.compile(rb"/v2/repository/models/[^/]+/(load|unload)"), "loading models; the settings name those served"),
    (
        re.compile(rb"/v2/models/.+/generate(_stream)?"),
        "generation and streams of this model; set backend.streams",
    ),
)


def not_supported(target: bytes) -> str | None:
    """The protocol feature behind a path that is not supported; None for a path of no known protocol."""
    path = _path_of(target)
    return next((text for pattern, text in _NOT_SUPPORTED if pattern.fullmatch(path)), None)


def shape_of(target: bytes) -> str:
    """The protocol of the error for a path without a route."""
    return "sagemaker" if target.startswith(b"/endpoints/") else "oip"


def versions_of(served: ServedModel) -> Sequence[str]:
    """A model's versions: its variants, or the one."""
    return served.variants or ("1",)
