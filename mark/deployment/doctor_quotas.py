"""The quotas part of `mark doctor`: whether the account lets the service rent what its load needs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from mark.aws.account.quotas import (
    KEPT_UNRESERVED,
    LambdaConcurrency,
    code_of_quota,
    lambda_concurrency,
    read_quotas,
)
from mark.aws.session import Aws
from mark.config.rollout import FUNCTION_MIB, FunctionSettings
from mark.config.settings import Settings
from mark.deployment.findings import Finding
from mark.domain.offering import Market, Offering
from mark.domain.quota import quota_family
from mark.live.models import LiveModel

LAMBDA_QUOTA = "L-B99A9384"
"""Lambda's concurrent executions in Service Quotas."""
HEADROOM = 2.0
"""A quota that is asked for holds so many times the load that came before."""


def check_vcpus(models: Sequence[LiveModel], aws: Aws) -> Iterator[Finding]:
    """Each quota that an offering counts against: whether it holds one instance, and the load that came before."""
    quotas = {(item.family, item.market): item.vcpus for item in read_quotas(aws)}
    for (family, market), needs in sorted(_by_pool(models).items()):
        name = f"vCPUs {family or 'of other families'} {market.value}"
        limit = quotas.get((family, market))
        if limit is None:
            yield Finding(check=name, state="unknown", message="the account lists no quota of these types")
            continue
        smallest = min(item.instance_type.vcpus for _, item in needs)
        needed = _vcpus_for_all(needs)
        remedy = _ask_for("ec2", code_of_quota(family, market), math.ceil(max(smallest, HEADROOM * needed)))
        if limit < smallest:
            detail = f"{limit:g}: not one instance; the smallest offering has {smallest}"
            yield Finding(check=name, state="error", message=detail, remedy=remedy)
        elif limit < needed:
            detail = f"{limit:g}; the load that came before takes {needed} with these types alone"
            yield Finding(check=name, state="warning", message=detail, remedy=remedy)
        else:
            yield Finding(check=name, state="ok", message=f"{limit:g}")


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
