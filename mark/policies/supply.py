"""Supply: what can be rented for a model under an objective. Replays, yardsticks and one-off plans ask here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mark.catalog.break_even import break_even_rps
from mark.catalog.load import PriceSnapshot, ProfileSet
from mark.catalog.offerings import LAMBDA_MEMORY_GIB, make_lambda, make_offerings
from mark.catalog.schema import LAMBDA
from mark.cloudmodel.world import IDEAL, World
from mark.domain.billing.footprint import Footprint
from mark.domain.billing.service_prices import ServiceItem, ServicePrices
from mark.domain.errors import Misconfigured
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.offerings.offering import (
    LAMBDA_PROFILED_GIB,
    LambdaGuess,
    LambdaOffering,
    Market,
    Offering,
    calls_of_models,
)
from mark.domain.plan import Excuse

MOST_EXCUSES = 3
"""Types named in an error where none serves: one line is read, a list of all is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowLimits:
    """Quotas of the account and size of the function, where they are not the usual ones (None).

    `concurrency` calls run at once; `burst` new environments may start within the quota's window; the function has
    `memory_gib`, or else `least_memory_gib` and what the model needs.
    """

    concurrency: int | None = None
    burst: int | None = None
    memory_gib: float | None = None
    least_memory_gib: float = LAMBDA_PROFILED_GIB


USUAL_LIMITS = OverflowLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Offerings of the market and of the same types on demand, Lambda, and the objective as it can be planned for.

    `excuses` say why types serve nothing, `overflow_excuse` what is wrong with Lambda; `lambda_guess` is what it
    might be where it was only not measured; `warnings`, `assumed` and
    `stand_ins` are what a reader of any figure must know.
    """

    slo: Slo
    offerings: tuple[Offering, ...]
    on_demand: tuple[Offering, ...]
    overflow: LambdaOffering | None
    excuses: tuple[Excuse, ...] = ()
    overflow_excuse: Excuse | None = None
    lambda_guess: LambdaGuess | None = None
    warnings: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()

    def break_even_rps(self, footprint: Footprint, model: ModelSpec) -> float | None:
        """The constant load, requests/s, from which instances cost less than Lambda alone; None where none does.

        None also where Lambda is switched off, or late.
        """
        if self.overflow is None or self.overflow_excuse is not None:
            return None
        overflow = priced(self.overflow, footprint.prices)
        return break_even_rps(footprint, self.offerings, overflow, payload_mib=model.payload_mib)


class NothingServes(Misconfigured):
    """No type that may be rented keeps the objective with this profile."""


def find_supply(
    model: ModelSpec,
    *,
    slo: Slo,
    market: Market,
    prices: PriceSnapshot,
    profiles: ProfileSet,
    types: tuple[str, ...] = (),
    world: World = IDEAL,
    limits: OverflowLimits | None = USUAL_LIMITS,
) -> Supply:
    """Everything that can be rented; without `limits` Lambda is switched off.

    NothingServes where nothing serves the model within the objective, Misconfigured where a size is beyond all
    profiles.
    """
    most = max((profile.max_batch for profile in profiles.profiles), default=0)
    if model.sizes is not None and model.sizes.largest > most > 0:
        raise Misconfigured(
            f"sizes {model.sizes.name!r}: size {model.sizes.largest} is beyond the profile of {model.name}, "
            f"which ends at {most}"
        )

    def offered(in_market: Market) -> tuple[tuple[Offering, ...], tuple[Excuse, ...]]:
        return make_offerings(
            model, slo=slo, prices=prices, profiles=profiles, market=in_market, types=types, world=world
        )

    offerings, excuses = offered(market)
    if not offerings:
        raise NothingServes(f"nothing can serve {model.name} within the objective: {_why(excuses, profiles)}")
    reached = _reachable(slo, offerings)
    warnings = profiles.warnings
    if reached != slo:
        whole = f"no type answers in half of {slo.latency_s * 1000:g} ms: plans allow a mean of all of it"
        warnings = (*warnings, whole)
    overflow, excuse = _overflow(model, profiles, slo, limits, world)
    on_demand = offered(Market.ON_DEMAND)[0]
    return Supply(
        slo=reached,
        offerings=offerings,
        on_demand=on_demand,
        overflow=overflow,
        excuses=excuses,
        overflow_excuse=excuse,
        lambda_guess=_guess(model, profiles, slo, limits, world, on_demand) if overflow is None else None,
        warnings=warnings,
        assumed=profiles.assumed,
        stand_ins=profiles.stand_ins,
    )


def _guess(
    model: ModelSpec,
    profiles: ProfileSet,
    slo: Slo,
    limits: OverflowLimits | None,
    world: World,
    on_demand: tuple[Offering, ...],
) -> LambdaGuess | None:
    """Lambda as fast as the fastest CPU that was measured; None where a measurement could not bring it in."""
    on_cpus = [one for one in on_demand if not one.instance_type.accelerator]
    if limits is None or profiles.lambda_ is not None or not on_cpus:
        return None
    like = min(on_cpus, key=lambda one: one.profile.latency_s(1))
    stand_in = replace(like.profile, instance_type=LAMBDA)
    found, excuse = _overflow(
        model, replace(profiles, profiles=(*profiles.profiles, stand_in)), slo, limits, world
    )
    if found is None or excuse is not None:
        return None
    return LambdaGuess(instance_type=like.instance_type.name, overflow=found)


def priced(overflow: LambdaOffering, prices: ServicePrices) -> LambdaOffering:
    """Lambda at the prices of the region."""
    return replace(
        overflow,
        usd_per_request=prices.price(ServiceItem.LAMBDA_REQUEST),
        usd_per_gib_s=prices.price(ServiceItem.LAMBDA_DURATION),
        usd_per_provisioned_gib_s=prices.price(ServiceItem.LAMBDA_PROVISIONED),
    )


def _why(excuses: tuple[Excuse, ...], profiles: ProfileSet) -> str:
    """The reasons of the fastest types that are left out, and the number of the others."""

    def quickest_s(excuse: Excuse) -> float:
        return profiles.of(excuse.offering.partition(":")[0]).points[0].latency_s

    shown = sorted(excuses, key=lambda excuse: (quickest_s(excuse), excuse.offering))[:MOST_EXCUSES]
    words = [f"{excuse.offering}: {excuse.reason}" for excuse in shown]
    if len(excuses) > len(shown):
        words.append(f"nor can {len(excuses) - len(shown)} slower")
    return "; ".join(words)


def _reachable(slo: Slo, offerings: tuple[Offering, ...]) -> Slo:
    """The objective with a mean latency that some type can keep (docs/decisions/0002-policies.md).

    Half of the objective is a default, not a promise: where even the fastest type takes longer, plans may use all
    of it. A mean latency that somebody asked for and nothing keeps is Misconfigured.
    """
    fastest = min(offerings, key=lambda o: (o.latency_s, o.name))
    if fastest.latency_s <= slo.mean_latency_s:
        return slo
    if slo.mean_is_default:
        return replace(slo, mean_latency_s=slo.latency_s)
    raise Misconfigured(
        f"no type keeps a mean latency of {slo.mean_latency_s * 1000:g} ms: the fastest, "
        f"{fastest.instance_type.name}, takes {fastest.latency_s * 1000:.4g} ms; raise mean_latency_ms"
    )


def _overflow(
    model: ModelSpec, profiles: ProfileSet, slo: Slo, limits: OverflowLimits | None, world: World
) -> tuple[LambdaOffering | None, Excuse | None]:
    if limits is None:
        return None, Excuse(offering="lambda", reason="switched off in the configuration")
    found, excuse = make_lambda(model, profiles, slo)
    if found is None:
        return found, excuse
    needed_gib = max(limits.least_memory_gib, model.memory_gib)
    memory_gib = needed_gib if limits.memory_gib is None else limits.memory_gib
    if not model.memory_gib <= memory_gib <= LAMBDA_MEMORY_GIB:
        raise Misconfigured(
            f"a function of {memory_gib:g} GiB: {model.name} needs {model.memory_gib:g} GiB and Lambda has "
            f"{LAMBDA_MEMORY_GIB:g} at most; change overflow_limits.memory_gib"
        )
    concurrency = found.concurrency if limits.concurrency is None else limits.concurrency
    concurrency = calls_of_models(min(concurrency, world.lambda_concurrency or concurrency))
    burst = found.burst if limits.burst is None else limits.burst
    return replace(found, cv=world.lambda_cv, concurrency=concurrency, burst=burst, memory_gib=memory_gib), excuse
