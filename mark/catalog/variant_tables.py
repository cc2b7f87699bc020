"""Tables of variants that are shipped: accuracy, and seconds by instance type and batch.

Shipped files are `data/variants/<name>.json`. Each says where its accuracies and its latencies are from; what
follows from a formula says so and states it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Literal

from pydantic import Field

from mark.catalog.schema import Entry, Name, Positive, parse_file
from mark.domain.errors import unknown
from mark.domain.models.profile import Evidence
from mark.domain.models.variants import Variant, VariantTable


class _Source(Entry):
    evidence: Evidence
    source: Name
    formula: str = ""


class _VariantEntry(Entry):
    name: Name
    accuracy: Annotated[float, Field(ge=0, le=1)]


class VariantFile(Entry):
    """A file of variants. latency_ms: by instance type a row a variant, batches of 1, 2, ... items."""

    format: Literal["mark-variants/1"]
    model: Name
    accuracy: _Source
    latency: _Source
    variants: Annotated[list[_VariantEntry], Field(min_length=1)]
    latency_ms: dict[str, list[list[Positive]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedVariants:
    """A shipped table. `notes`: where accuracies and latencies are from, one sentence each."""

    table: VariantTable
    notes: tuple[str, ...]


def shipped_variants() -> tuple[str, ...]:
    """Names of the shipped tables, sorted."""
    return tuple(sorted(item.name.removesuffix(".json") for item in _folder().iterdir()))


def load_variants(name: str) -> ShippedVariants:
    """The shipped table of that name; an unknown one raises Misconfigured with the nearest name."""
    if name not in shipped_variants():
        raise unknown("table of variants", name, shipped_variants())
    found = parse_file((_folder() / f"{name}.json").read_text(encoding="utf-8"), VariantFile, f"{name}.json")
    return ShippedVariants(
        table=VariantTable(
            model=found.model,
            variants=tuple(Variant(name=entry.name, accuracy=entry.accuracy) for entry in found.variants),
            latency_s={
                kind: tuple(tuple(ms / 1000 for ms in row) for row in rows)
                for kind, rows in found.latency_ms.items()
            },
        ),
        notes=(_note("Accuracies", found.accuracy), _note("Latencies", found.latency)),
    )


def _note(subject: str, source: _Source) -> str:
    formula = f" Formula: {source.formula}" if source.formula else ""
    return f"{subject}: {source.evidence.value}. {source.source}.{formula}"


def _folder() -> Traversable:
    return files("mark.catalog") / "data" / "variants"
