"""docs/hardware.md: sets of types, every profile of the benchmarked models with its source, accelerators."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap

from mark.catalog.load import load_models, load_prices, load_profiles
from mark.catalog.type_sets import RETIRED_FAMILIES, is_retired
from mark.domain.models.profile import Evidence, Profile
from mark.domain.offerings.offering import InstanceType
from scripts.build_catalog import BENCHMARKED

WIDTH = 100
INCEPTION = "inception-v3"
ASSUMED_SETS = ("assumed-current", "assumed-lambda")
INTRO = f"""
For you if you want to know which instance types MArk can rent, and what it knows of them.

## Which types it may rent

`--types`, or `offerings.types` in the settings, takes types and named sets, in any mixture. A set
chooses among the types on which the model is profiled; a type that you name must have a profile.

| set | types |
|---|---|
| `current` (the default) | all but retired ones |
| `cpu` | of those, the ones without an accelerator |
| `paper` | what MArk's evaluation rented: c5 and p2, and t2 as standbys |

Retired are {" and ".join(RETIRED_FAMILIES)}: EC2's own list of types no longer has them. MArk rents one
only where you name it, or `paper`. Burstable types stand by, unless you name one. Quotas count too: the
world `typical` is an account without P instances ([worlds.md](worlds.md)), so replay the paper's types
with `simulate.quotas: false`. A service rents no GPUs unless `rollout.machines` says so
([deploy.md](deploy.md#the-whole-service)).

<!-- run: mark trace generate surge --rps 20 --duration-s 1800 --seed 1 --out load.csv.gz -->
```sh
mark simulate --trace load.csv.gz --model inception-v3 --types cpu
mark plan --model resnet-50 --rate 2000 --types current --profiles assumed-current
```

## What is known of them

Two models have published benchmarks on types that you can rent today. Three rules chose the figures:

- **One batch in one server.** Where a source keeps several batches in flight, their items count as
  one batch: inf2.xlarge has two cores, and they share its batch.
- **Half precision on accelerators**, on CPUs what the runtime takes by default. An INT8 run is
  another model.
- **The fastest runtime** with a stated batch size. Runtimes and years differ between types: measure
  your own model (`mark profile --on c7i.xlarge`) before you trust a choice between two of them.

A figure of the very type is *published*; one of its chip in another server is a *stand-in*; one that follows by a
formula is *assumed*, and used only with `--profiles assumed-current` or `--profiles assumed-lambda`.
"""
ACCELERATED = """
## Types with an accelerator

All that the price file has, a family a row, with the memory of one accelerator as EC2 reports it. MArk
rents one of these types only if your model has a profile on it ([measure one](own-model.md)). USD an
hour are on demand, then spot; types without a second price are rented on demand only.
"""


def hardware_page() -> str:
    """The page, from the shipped catalogue."""
    lines = [INTRO.strip("\n"), ""]
    for name in (*BENCHMARKED, INCEPTION):
        lines += [f"### {name}", "", *_needs(name), *_table(name), ""]
    lines += [ACCELERATED.strip("\n"), "", *_accelerated(), ""]
    return "\n".join(["# Hardware", "", *lines])


def _needs(name: str) -> Iterator[str]:
    spec = load_models()[name]
    if name == INCEPTION:
        yield "Its published profiles are the paper's, on c5, p2, t2 and Lambda. These are assumed beside them:"
    else:
        yield from wrap(
            f"{spec.slo.target * 100:g} % within {spec.slo.latency_s * 1000:g} ms, {spec.memory_gib:g} GiB, "
            f"{spec.payload_mib:g} MiB a request. {spec.source[:1].upper()}{spec.source[1:]}.",
            WIDTH,
            break_on_hyphens=False,
        )
    yield ""


def _table(name: str) -> Iterator[str]:
    prices = {item.name: item for item in load_prices().types}
    yield "| type | USD an hour, spot | ms by batch | evidence | source |"
    yield "|---|---|---|---|---|"
    for profile in load_profiles(name, ASSUMED_SETS).profiles:
        if name == INCEPTION and profile.provenance.evidence is not Evidence.ASSUMED:
            continue
        item = prices.get(profile.instance_type)
        assert item is None or not is_retired(item)
        cost = f"{item.on_demand_usd_per_hour:g}, {item.spot_usd_per_hour:g}" if item else ""
        cells = (profile.instance_type, cost, _points(profile), _evidence(profile), _source(profile))
        yield f"| {' | '.join(cells)} |"


def _accelerated() -> Iterator[str]:
    yield "| family | accelerator | GiB each | size, accelerators if several: USD an hour |"
    yield "|---|---|---|---|"
    accelerated = (item for item in load_prices().types if item.accelerator and not is_retired(item))
    ordered = sorted(accelerated, key=lambda item: (item.name.partition(".")[0], item.on_demand_usd_per_hour))
    for family, items in groupby(ordered, key=_family):
        yield f"| {' | '.join(family)} | {'; '.join(map(_size, items))} |"


def _family(item: InstanceType) -> tuple[str, str, str]:
    return item.name.partition(".")[0], f"{item.accelerator}", f"{item.accelerator_memory_gib:g}"


def _size(item: InstanceType) -> str:
    count = "" if item.accelerator_count == 1 else f" ({item.accelerator_count})"
    spot = "" if item.spot_usd_per_hour is None else f", {item.spot_usd_per_hour:g}"
    return f"{item.name.partition('.')[2]}{count}: {item.on_demand_usd_per_hour:g}{spot}"


def _points(profile: Profile) -> str:
    return ", ".join(f"{point.batch}: {point.latency_s * 1000:.5g}" for point in profile.points)


def _evidence(profile: Profile) -> str:
    known = profile.provenance
    return (
        f"{known.evidence.value}: {known.machine}" if known.evidence is Evidence.STAND_IN else known.evidence.value
    )


def _source(profile: Profile) -> str:
    known = profile.provenance
    return f"{known.formula}. From {known.source}" if known.formula else f"{known.source} ({known.date})"
