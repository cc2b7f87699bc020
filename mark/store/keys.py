"""The names under which a service's values are stored."""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.errors import Misconfigured

MODEL_PARTS = (
    "served",
    "arrivals",
    "shared",
    "traffic",
    "latency",
    "gauges",
    "ledger",
    "noted",
    "rollup",
    "journal",
)
"""Kinds of keys of each model."""
MODEL_DOCUMENTS = (
    "model", "tallies", "load", "replays", "shadow", "trained", "trained-on", "rollout-command",
)  # fmt: skip
"""Status documents that are one model's."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one service.

    They begin with one hash tag, so that a cluster keeps them on one node and a script may touch several of them.
    """

    service: str

    def __post_init__(self) -> None:
        if not self.service or set(self.service) & set("{}"):
            raise Misconfigured(
                f"{self.service!r} cannot name a service: it takes one character or more, no braces"
            )

    def of(self, *parts: str | int) -> str:
        """The key of what `parts` name."""
        return ":".join((f"{{mark:{self.service}}}", *map(str, parts)))

    def of_model(self, model: str, segments: range) -> tuple[str, ...]:
        """All keys of one model, the journal's `segments` included."""
        return (
            *(self.of(part, model) for part in MODEL_PARTS),
            *(self.of("status", f"{document}:{model}") for document in MODEL_DOCUMENTS),
            *(self.of("journal", model, number) for number in segments),
        )

    def of_version(self, model: str, version: str) -> str:
        """The key of what agents of a model's version are told; without one that of the model's first."""
        return self.of("served", model, version) if version else self.of("served", model)

    @property
    def members(self) -> tuple[str, ...]:
        """Keys of the scripts on members: they, when each was seen, version, when anybody was, digests."""
        return tuple(self.of(part) for part in ("members", "seen", "version", "heard-at", "digests"))

    @property
    def drains(self) -> tuple[str, str]:
        """Instances that shall drain, a set: an agent may read it, no more; when each was told."""
        return self.of("drains"), self.of("drains-at")

    @property
    def announced(self) -> tuple[str, ...]:
        """Keys of an announcement: those on members, and its request to drain."""
        return (*self.members, self.drains[0])

    @property
    def listing(self) -> tuple[str, str]:
        """Instances by model as AWS lists them, and what shared ones are told to hold; out of agents' reach."""
        return self.of("fleet"), self.of("held")

    @property
    def walls(self) -> tuple[str, str]:
        """Offset of wall from monotonic clock by host, and when a process began there last."""
        return self.of("wall-offsets"), self.of("walls-seen")

    @property
    def peers(self) -> tuple[str, ...]:
        """Keys of the scripts on gateways: where each is, and when it was seen."""
        return self.of("peers"), self.of("peers-seen")
