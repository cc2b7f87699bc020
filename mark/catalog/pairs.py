"""Pairs files: how much longer a model's batch takes beside another model on the same GPU.

    {"format": "mark-pairs/1",
     "pairs": [
       {"model": "resnet-50", "beside": "ssd-resnet50", "slowdown": 0.1308, "evidence": "published",
        "source": "who measured it", "machine": "V100"}]}

`slowdown` is a share: 0.13 takes 13 % longer than alone. A pair has two entries, one for each of the two that is
slowed down. `evidence` reads as in a profile (`mark/catalog/schema.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mark.catalog.load import read_text
from mark.catalog.schema import Entry, Name, parse_file, refuse_twice
from mark.domain.errors import Misconfigured, unknown
from mark.domain.models.profile import Evidence


class PairEntry(Entry):
    """`model` while `beside` runs on the same GPU."""

    model: Name
    beside: Name
    slowdown: Annotated[float, Field(ge=0)]
    evidence: Evidence
    source: Name
    machine: str = ""


class PairFile(Entry):
    """Pairs in any order; each direction stands once."""

    format: Literal["mark-pairs/1"]
    pairs: list[PairEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_pair_once(self) -> Self:
        refuse_twice("pair", [f"{entry.model} beside {entry.beside}" for entry in self.pairs])
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Slowdown by model and neighbour; `name` is the file's."""

    name: str
    slowdowns: Mapping[tuple[str, str], float]

    def slowdown(self, model: str, beside: str) -> float:
        """The slowdown of a model beside another; a pair that nobody measured is refused."""
        try:
            return self.slowdowns[model, beside]
        except KeyError:
            entry = (
                f'{{"model": "{model}", "beside": "{beside}", "slowdown": ..., "evidence": ..., "source": ...}}'
            )
            raise Misconfigured(
                f"{self.name} has no pair {model} beside {beside}: measure it, and add {entry}"
            ) from None


def load_pairs(named: Path | str) -> Pairs:
    """A pairs file, or a shipped set by its name."""
    shipped = files("mark.catalog") / "data" / "pairs"
    if isinstance(named, str):
        names = [item.name.removesuffix(".json") for item in shipped.iterdir()]
        if named not in names:
            raise unknown("set of pairs", named, names)
        path, name = shipped / f"{named}.json", f"{named}.json"
    else:
        path, name = named, str(named)
    file = parse_file(read_text(path), PairFile, name)
    return Pairs(name=name, slowdowns={(item.model, item.beside): item.slowdown for item in file.pairs})
