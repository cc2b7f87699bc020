"""Limits of the account for `mark doctor`: whether plan and quotas let the service rent what its load needs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from mark.aws.account.preflight import is_on_free_plan
from mark.aws.account.quotas import (
    KEPT_UNRESERVED,
    LambdaConcurrency,
    code_of_quota,
    lambda_concurrency,
    read_quotas,
)
from mark.aws.errors import UPGRADE
from mark.aws.prices import free_plan_types
from mark.aws.session import Aws
from mark.config.footprint import front_machines
from mark.config.rollout import FUNCTION_MIB, FunctionSettings
from mark.config.settings import Settings
from mark.deployment.checks.findings import Finding
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.offerings.offering import Market, Offering
from mark.domain.offerings.quota import quota_family
from mark.live.models import LiveModel
from mark.report.terminal import note

LAMBDA_QUOTA = "L-B99A9384"
"""Lambda's concurrent executions in Service Quotas."""
HEADROOM = 2.0
"""A quota that is asked for holds so many times the load that came before."""


def check_plan(settings: Settings, models: Sequence[LiveModel], aws: Aws) -> Iterator[Finding]:
    """Check that the account's plan lets it launch what the service is made of."""
    if not is_on_free_plan(aws):
        yield Finding(check="plan", state="ok", message="the account may launch every type")
        return
    may = free_plan_types(aws)
    front = front_machines(settings, models=len(models)).instance_type
    needs = {model.name: {item.instance_type.name for item in model.served.offerings} for model in models}
    refused = sorted({front.name}.union(*needs.values()) - may)
    stuck = [name for name, types in {**needs, "the service itself": {front.name}}.items() if not types & may]
    kept = sorted(may if stuck else may.intersection(set().union(*needs.values())))
    detail = f"AWS's Free plan, which does not launch {', '.join(refused)}"
    if stuck:
        message, remedy = f"{detail}: {', '.join(stuck)} cannot run", f"{UPGRADE}; it launches {', '.join(kept)}"
        yield Finding(check="plan", state="error", message=message, remedy=remedy)
    elif refused:
        remedy = f"{UPGRADE}; or set offerings.types: [{', '.join(kept)}]"
        yield Finding(check="plan", state="warning", message=detail, remedy=remedy)
    else:
        yield Finding(check="plan", state="ok", message="AWS's Free plan, which launches all that may be rented")


def check_vcpus(settings: Settings, models: Sequence[LiveModel], aws: Aws) -> Iterator[Finding]:
    """Each quota that machines count against: the service's own, one instance, and the load that came before."""
    quotas = {(item.family, item.market): item.vcpus for item in read_quotas(aws)}
    front = front_machines(settings, models=len(models))
    of_front = quota_family(front.instance_type.name, Market.ON_DEMAND), Market.ON_DEMAND
    pools = _by_pool(models)
    for family, market in sorted({*pools, of_front}):
        name = f"vCPUs {family or 'of other families'} {market.value}"
        limit, needs = quotas.get((family, market)), pools.get((family, market), [])
        if limit is None:
            yield Finding(check=name, state="unknown", message="the account lists no quota of these types")
            continue
        taken = front.vcpus if (family, market) == of_front else 0
        beside = f", of which {front.name} take {taken} during an update" if taken else ""
        smallest = min((item.instance_type.vcpus for _, item in needs), default=0)
        needed = _vcpus_for_all(needs)
        wanted = math.ceil(max(taken + smallest, HEADROOM * (taken + needed)))
        remedy = _ask_for("ec2", code_of_quota(family, market), wanted)
        if limit < taken + smallest:
            detail = f"{limit:g}{beside}: not one instance; the smallest offering has {smallest}"
            yield Finding(check=name, state="error", message=detail, remedy=remedy)
        elif limit < taken + needed:
            detail = f"{limit:g}{beside}; the load that came before takes {needed} with these types alone"
            yield Finding(check=name, state="warning", message=detail, remedy=remedy)
        else:
            yield Finding(check=name, state="ok", message=f"{limit:g}{beside}")


def require_quota_of_front(settings: Settings, models: int, aws: Aws) -> None:
    """Misconfigured where the account's quota does not hold the machines before the fleet while they are updated.

    Quotas that cannot be read are no reason to stop: `mark doctor` says so.
    """
    front = front_machines(settings, models=models)
    family = quota_family(front.instance_type.name, Market.ON_DEMAND)
    try:
        quotas = read_quotas(aws)
    except MarkError as error:
        note(f"the vCPU quotas cannot be read: {error}")
        return
    for one in quotas:
        if (one.family, one.market) == (family, Market.ON_DEMAND) and one.vcpus < front.vcpus:
            raise Misconfigured(
                f"the account's quota of {family} vCPUs on demand is {one.vcpus:g}, and {front.name} of the type "
                f"{front.instance_type.name} take {front.vcpus} during an update: "
                f"{_ask_for('ec2', code_of_quota(family, one.market), 2 * front.vcpus)}"
            )


def check_lambda(settings: Settings, models: Sequence[LiveModel], aws: Aws) -> Iterator[Finding]:
    """Check that Lambda runs as many calls at once as plans count on."""
    if all(model.served.overflow is None for model in models):
        yield Finding(check="Lambda", state="skipped", message="no model overflows to Lambda")
        return
    yield from check_function_memory(models)
    concurrency = lambda_concurrency(aws)
    yield from check_reserved(settings.rollout.functions, models, concurrency)
    limit, wanted = concurrency.limit, settings.policy.overflow_limits.concurrency
    detail = f"{limit} calls at once, plans reckon with {wanted}"
    if limit >= wanted:
        yield Finding(check="Lambda", state="ok", message=detail)
        return
    remedy = f"set policy.overflow_limits.concurrency to {limit}, or {_ask_for('lambda', LAMBDA_QUOTA, wanted)}"
    yield Finding(check="Lambda", state="error", message=detail, remedy=remedy)


def check_reserved(
    functions: FunctionSettings, models: Sequence[LiveModel], concurrency: LambdaConcurrency
) -> Iterator[Finding]:
    """Check that Lambda lets functions reserve calls at once, or keep them provisioned; else their stack fails."""
    each = max(functions.reserved or 0, functions.provisioned)
    served = [model.served for model in models if model.served.overflow is not None]
    wanted = each * sum(2 if one.function_versions else 1 for one in served)
    if not wanted:
        return
    name = "rollout.functions." + ("reserved" if functions.reserved else "provisioned")
    taken = concurrency.limit - concurrency.unreserved
    detail = f"{name} takes {wanted} of {concurrency.limit} calls at once; {concurrency.kept} must stay unreserved"
    remedy = f"leave {name} out, or {_ask_for('lambda', LAMBDA_QUOTA, wanted + taken + KEPT_UNRESERVED)}"
    if wanted > concurrency.limit - concurrency.kept:
        yield Finding(check="Lambda reserved", state="error", message=detail, remedy=remedy)
    elif wanted > concurrency.unreserved - concurrency.kept:
        detail += f", and functions have reserved {taken}: enough if they are this service's"
        yield Finding(check="Lambda reserved", state="warning", message=detail, remedy=remedy)
    else:
        yield Finding(check="Lambda reserved", state="ok", message=detail)


def check_function_memory(models: Sequence[LiveModel]) -> Iterator[Finding]:
    """Say where a function is larger than new accounts may have. AWS does not tell an account's limit."""
    sizes = {
        one.name: round(one.served.overflow.memory_gib * 1024) for one in models if one.served.overflow is not None
    }
    large = [f"{name} {mib}" for name, mib in sizes.items() if mib > FUNCTION_MIB]
    if large:
        detail = f"functions of {', '.join(large)} MiB; new accounts have {FUNCTION_MIB} at most"
        remedy = (
            f"where yours is new: rollout.functions.memory_mib up to {FUNCTION_MIB}, or ask AWS Support for more"
        )
        yield Finding(check="Lambda memory", state="warning", message=detail, remedy=remedy)


def _by_pool(models: Sequence[LiveModel]) -> dict[tuple[str, Market], list[tuple[LiveModel, Offering]]]:
    found: defaultdict[tuple[str, Market], list[tuple[LiveModel, Offering]]] = defaultdict(list)
    for model in models:
        for item in model.served.offerings:
            family = quota_family(item.instance_type.name, item.market)
            found[family, item.market].append((model, item))
    return found


def _vcpus_for_all(needs: Sequence[tuple[LiveModel, Offering]]) -> int:
    """Sum of the vCPUs of all models together, each on the one of its offerings that takes most."""
    by_model: defaultdict[str, int] = defaultdict(int)
    for model, item in needs:
        by_model[model.name] = max(by_model[model.name], _vcpus_for(model, item))
    return sum(by_model.values())


def _vcpus_for(model: LiveModel, item: Offering) -> int:
    """The vCPUs of a fleet of this offering alone at the highest rate so far."""
    highest = max(model.setup.history.max_rps, default=0.0)
    return math.ceil(highest / item.capacity_rps) * item.instance_type.vcpus


def _ask_for(service: str, code: str, value: int) -> str:
    request = f"--service-code {service} --quota-code {code} --desired-value {value}"
    return f"ask for more: `aws service-quotas request-service-quota-increase {request}`"
