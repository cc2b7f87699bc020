"""Prices, models and profiles, read from the files shipped beside this module or from the user's own.

Shipped files are `data/prices_<region>_<date>.json` (instances), `data/services_<region>_<date>.json` (all else),
`data/models.json` and `data/profiles/<name>.json`; those of supernets stand beside their networks. A profile set
starts from `<model>.json`; further files are added by name in the order in which they are named, and a later
profile of a type replaces an earlier one. Files called `assumed-...` are never read unless named.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from mark.catalog.schema import LAMBDA, ModelFile, PriceFile, ServicePriceFile, parse_file, parse_profiles
from mark.domain.billing.service_prices import ServicePrices, price_key
from mark.domain.errors import Misconfigured, unknown
from mark.domain.models.objective import ModelSpec
from mark.domain.models.profile import Profile, assumed_words, stand_in_words
from mark.domain.models.variants import Variant, VariantTable
from mark.domain.offerings.offering import InstanceType

SUPERNETS = {
    "supernet": "mark.models.supernet:Supernet",
    "supernet-text": "mark.models.supernet_text:TextSupernet",
}
"""Shipped models with variants by name, and their networks: figures and profiles stand beside these."""
BASE = "base"
"""The variant of a model that has one."""
ASSUMED_PREFIX = "assumed-"
"""Shipped profile files that somebody must name: their numbers follow from a formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSnapshot:
    """Instance types of one region with their prices on a day, sorted by name."""

    region: str
    date: str
    source: str
    types: tuple[InstanceType, ...]

    @property
    def names(self) -> frozenset[str]:
        """Names of its types."""
        return frozenset(item.name for item in self.types)

    @property
    def on_demand_usd_per_hour(self) -> dict[str, float]:
        """Price on demand by type."""
        return {item.name: item.on_demand_usd_per_hour for item in self.types}

    def instance_type(self, name: str) -> InstanceType:
        """The type of that name; an unknown one raises Misconfigured with the nearest name."""
        for item in self.types:
            if item.name == name:
                return item
        raise unknown("instance type", name, (item.name for item in self.types))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSet:
    """Profiles of one model, by instance type, sorted; `warnings` name points to doubt."""

    model: str
    profiles: tuple[Profile, ...]
    warnings: tuple[str, ...] = ()

    def of(self, instance_type: str) -> Profile:
        """The profile on that type; Misconfigured names the missing one and those that exist."""
        for profile in self.profiles:
            if profile.instance_type == instance_type:
                return profile
        there = ", ".join(self.instance_types) or "no type"
        raise Misconfigured(
            f"no profile of {self.model} on {instance_type}: measure one, or name a profile file or an assumed "
            f"set that has it (profiled: {there})"
        )

    @property
    def lambda_(self) -> Profile | None:
        """The profile on Lambda, if there is one."""
        return next((p for p in self.profiles if p.instance_type == LAMBDA), None)

    @property
    def instance_types(self) -> tuple[str, ...]:
        """The profiled instance types, without Lambda."""
        return tuple(p.instance_type for p in self.profiles if p.instance_type != LAMBDA)

    @property
    def assumed(self) -> tuple[str, ...]:
        """The profiles that are assumed, each with its formula: what every report must say."""
        return assumed_words(self.profiles)

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """The profiles measured on another machine than their type, each with that machine: reports say it too."""
        return stand_in_words(self.profiles)


def load_prices(path: Path | None = None) -> PriceSnapshot:
    """The prices in `path`, or the newest shipped snapshot."""
    return _shipped_prices() if path is None else _prices_of(path, str(path))


@cache
def _shipped_prices() -> PriceSnapshot:
    shipped = (item for item in _data().iterdir() if item.name.startswith("prices_"))
    newest = max(shipped, key=lambda item: item.name)
    return _prices_of(newest, newest.name)


def _prices_of(source: Path | Traversable, name: str) -> PriceSnapshot:
    file = parse_file(read_text(source), PriceFile, name)
    return PriceSnapshot(
        region=file.region,
        date=file.date,
        source="; ".join(f"{column}: {origin}" for column, origin in file.sources.items()),
        types=tuple(sorted((entry.to_domain() for entry in file.types), key=lambda item: item.name)),
    )


def load_service_prices(region: str, path: Path | None = None) -> ServicePrices:
    """Prices of AWS's services in `path`, or the newest shipped table of the region.

    Misconfigured where there is none for the region.
    """
    source: Path | Traversable
    if path is not None:
        source, name = path, str(path)
    else:
        prefix = f"services_{region.replace('-', '_')}_"
        shipped = sorted(item.name for item in _data().iterdir() if item.name.startswith("services_"))
        names = [name for name in shipped if name.startswith(prefix)]
        if not names:
            copied = shlex.join(["cp", str(_data() / shipped[-1]), "services.json"])
            raise Misconfigured(
                f"nothing says what AWS's services cost in {region}: make a table of your own by `{copied}`, "
                f"write {region}, the date and the prices there into it, and name the file as `service_prices` "
                "(docs/costs.md)"
            )
        name = names[-1]
        source = _data() / name
    file = parse_file(read_text(source), ServicePriceFile, name)
    if file.region != region:
        raise Misconfigured(
            f"{name} has the prices of {file.region}, and instances are priced in {region}: name a file of that "
            "region as `service_prices` (docs/costs.md)"
        )
    usd = {price_key(entry.item, entry.variant): entry.usd for entry in file.prices}
    return ServicePrices(region=file.region, date=file.date, usd=usd)


def load_models(path: Path | None = None) -> dict[str, ModelSpec]:
    """The models in `path`, or the shipped ones, by name."""
    shipped = (_data() / "models.json", *(supernet_folder(name) / "model.json" for name in SUPERNETS))
    sources: Sequence[Path | Traversable] = (path,) if path else shipped
    read = (parse_file(read_text(source), ModelFile, str(path or source.name)) for source in sources)
    return {entry.name: entry.to_domain() for file in read for entry in file.models}


def known_models(path: Path | None = None) -> dict[str, ModelSpec]:
    """The shipped models by name, and those in `path` (docs/own-model.md), which replace shipped ones."""
    return load_models() | (load_models(path) if path else {})


def model(name: str) -> ModelSpec:
    """The shipped model of that name; an unknown one raises Misconfigured with the nearest name."""
    known = load_models()
    if name not in known:
        raise unknown("model", name, known)
    return known[name]


def shipped_sets() -> tuple[str, ...]:
    """Names of the shipped profile files, models and assumed sets, sorted."""
    files_ = (item.name.removesuffix(".json") for item in _profiles().iterdir() if item.is_file())
    return tuple(sorted((*files_, *SUPERNETS)))


def load_variants(model: str, extra: Sequence[Path | str] = ()) -> VariantTable | None:
    """The variants of `model` on the types that all of them were profiled on; None for one without variants.

    One that has the variant `base`, or variants whose accuracy nobody measured, has none to choose from.
    """
    found = {(p.variant, p.instance_type): p for named in _sets_of(model, extra) for p in _named(model, named)}
    profiles = [profile for profile in found.values() if profile.accuracy is not None]
    if not profiles or len(profiles) < len(found) or any(profile.variant == BASE for profile in profiles):
        return None
    accuracy = {profile.variant: profile.accuracy or 0.0 for profile in profiles}
    variants = tuple(
        Variant(name, accuracy[name]) for name in sorted(accuracy, key=lambda one: (accuracy[one], one))
    )
    types = sorted({profile.instance_type for profile in profiles})
    largest = min(profile.max_batch for profile in profiles)
    return VariantTable(
        model=model,
        variants=variants,
        latency_s={
            kind: tuple(tuple(found[one.name, kind].latencies_s(largest)) for one in variants)
            for kind in types
            if all((one.name, kind) in found for one in variants)
        },
    )


def _named(model: str, named: Path | str) -> list[Profile]:
    return [profile for profile in _read_profiles(named) if profile.model == model]


def _sets_of(model: str, extra: Sequence[Path | str]) -> list[Path | str]:
    """Where the profiles of a model are read, in order."""
    shipped = model in shipped_sets() and not model.startswith(ASSUMED_PREFIX)
    return [*([model] if shipped else []), *extra]


def load_profiles(model: str, extra: Sequence[Path | str] = (), *, variant: str | None = None) -> ProfileSet:
    """The profiles of `model`: the shipped ones, then those of the files or shipped sets named in `extra`.

    A named profile replaces one of the same type that was there before. Profiles of other models in a named file
    are left out; a file without any for `model` is a warning. Only one variant is looked at: without a name the
    most accurate one of a model with variants, or `base`.
    """
    if variant is None:
        table = load_variants(model, extra)
        variant = table.names[-1] if table is not None else BASE
    by_type: dict[str, Profile] = {}
    warnings: list[str] = []
    shipped = [name for name in shipped_sets() if not name.startswith(ASSUMED_PREFIX)]
    for named in _sets_of(model, extra):
        found = [profile for profile in _named(model, named) if profile.variant == variant]
        if not found:
            warnings.append(f"{named} has no profile of {model}")
        by_type |= {profile.instance_type: profile for profile in found}
    if not by_type and warnings:
        raise Misconfigured(f"{'; '.join(warnings)}: name a profile file of it (docs/own-model.md)")
    if not by_type:
        refusal = unknown("profiled model", model, shipped)
        raise Misconfigured(f"{refusal}; profiles of your own are named with --profiles (docs/own-model.md)")
    profiles = tuple(profile for _, profile in sorted(by_type.items()))
    for profile in profiles:
        warnings.extend((*_dip_warnings(profile), *_unstable_warnings(profile)))
    return ProfileSet(model=model, profiles=profiles, warnings=tuple(warnings))


def _read_profiles(named: Path | str) -> tuple[Profile, ...]:
    if isinstance(named, str) and named in SUPERNETS:
        return parse_profiles(read_text(supernet_folder(named) / "profile.json"), f"{named}.json")
    if isinstance(named, str) and named in shipped_sets():
        return parse_profiles(read_text(_profiles() / f"{named}.json"), f"{named}.json")
    path = Path(named)
    if isinstance(named, str) and not path.suffix and not path.exists():
        raise unknown("profile set", named, shipped_sets())
    return parse_profiles(read_text(path), str(path))


def _dip_warnings(profile: Profile) -> list[str]:
    dips = ", ".join(f"{point.batch} ({point.latency_s * 1000:.4g} ms)" for point in profile.dips())
    if not dips:
        return []
    where = f"{profile.model} on {profile.instance_type}"
    return [f"{where}: batches of {dips} took over 5 % less than a smaller one; plans use the smaller one's time"]


def _unstable_warnings(profile: Profile) -> list[str]:
    sizes = profile.provenance.unstable_batches
    if not sizes:
        return []
    where, listed = f"{profile.model} on {profile.instance_type}", ", ".join(map(str, sizes))
    return [f"{where}: batches of {listed} were not stable when the time to measure was up; measure longer"]


def _data() -> Traversable:
    return files("mark.catalog") / "data"


def _profiles() -> Traversable:
    return _data() / "profiles"


def supernet_folder(name: str) -> Path:
    """Where its weights lie. Misconfigured where no supernet of that name is shipped."""
    if name not in SUPERNETS:
        raise unknown("shipped supernet", name, SUPERNETS)
    return Path(__file__).parents[2].joinpath(*SUPERNETS[name].partition(":")[0].split("."))


def read_text(source: Path | Traversable) -> str:
    """The text of a file, without the mark of bytes that some editors begin it with; one line of why not."""
    try:
        return source.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise Misconfigured(f"{source}: cannot be read: {reason}") from error
