"""Replay of a service's present pool with one central queue, and shared among its gateways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from mark.config.policies import chosen_model, chosen_sizes, usable_cache
from mark.config.settings import Settings
from mark.dispatch.central.queue import base_first
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.load.size_window import EMPTY_WINDOW, WINDOW
from mark.domain.load.sizes import SizeDistribution, sizes_from_formula
from mark.planner.kairos.budget_pool import latency_table
from mark.report.cost.archive_reader import ArchiveReader
from mark.report.cost.read import journal_of
from mark.report.cost.sharing import SharingCost
from mark.report.terminal import note
from mark.service_spec import ServedModel
from mark.simulator.engine.compiled import CentralKernel, compiled_central_kernel
from mark.simulator.fixed.fixed_pool import FixedPool, PoolLoad
from mark.store.published_status import MODEL, PublishedModel

QUERIES = 5_000
"""Of each replay: a rate is then known to some 2 %, in half a second."""


def _compiled() -> CentralKernel:
    return compiled_central_kernel(usable_cache())


def replay_sharing(
    store: ArchiveReader,
    served: ServedModel,
    settings: Settings,
    *,
    kernel: Callable[[], CentralKernel] = _compiled,
) -> SharingCost | None:
    """The cost of sharing the instances that are ready now; None without a central queue or with nothing to share.

    settings: the model's own. kernel: called where something is to be replayed.
    """
    gateways = len(store.gateways())
    published = MODEL.read(store, served.name) or PublishedModel()
    offered = {item.name: item for item in served.offerings}
    ready = Counter(
        one.offering
        for one in published.observed
        if one.state is InstanceState.READY and one.role is Role.SERVING and one.offering in offered
    )
    if served.central is None or gateways < 2 or ready.total() < gateways:
        return None
    largest = min(item.profile.max_batch for item in offered.values())
    sizes = _measured(store, served.name, largest) or chosen_sizes(settings, chosen_model(settings))
    sizes = sizes or sizes_from_formula("constant:1")
    # a type is the same on spot and on demand: one offering stands for all of it
    named = {offered[name].instance_type.name: name for name in sorted(ready)}
    counts = Counter[str]()
    for name, count in ready.items():
        counts[named[offered[name].instance_type.name]] += count
    there = tuple(offered[name] for name in sorted(counts))
    order = base_first({item.name: item.profile.latencies_s(sizes.largest) for item in there})
    pool = {name: counts[name] for name in order}
    table, policy, code = latency_table(there, sizes), served.central, kernel()

    def rate(queues: int) -> float:
        load = PoolLoad(sizes=sizes, queries=QUERIES, gateways=queues)
        return FixedPool(table, served.slo, load, kernel=code).allowable_qps(pool, policy)

    return SharingCost(
        gateways=gateways,
        pool=tuple(sorted(ready.items())),
        sizes=sizes.name,
        queries=QUERIES,
        one_queue_qps=rate(1),
        shared_qps=rate(gateways),
    )


def _measured(store: ArchiveReader, model: str, largest: int) -> SizeDistribution | None:
    """Sizes of the last requests that the journal knows of; None where they are too few."""
    window = EMPTY_WINDOW
    for _, ticks in journal_of(store, model, skip=lambda why: note(f"the journal of {model}: {why}")):
        for tick in ticks:
            if tick.seen.demand is not None:
                window = window.followed_by(tick.seen.demand.sizes, WINDOW)
    return window.distribution(WINDOW, largest)
