"""The emulated AWS's process: FOLDER PARENT PORT BEGAN_AT.

It draws its times from the streams that a replay draws from, and its minutes count from the service's start.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from mark.aws.account.quotas import code_of_quota
from mark.aws.archive import bucket_name
from mark.aws.names import TRAIN, name_of
from mark.aws.permissions.policies import Names
from mark.catalog.commitment_file import load_commitments
from mark.catalog.load import load_prices
from mark.config.footprint import front_machines
from mark.config.policies import named_world
from mark.config.served import model_names
from mark.config.settings import Settings, cache_dir
from mark.config.training import trains_in_function
from mark.domain.clock import ClockAnchor
from mark.domain.commitments.owned import NO_COMMITMENTS
from mark.domain.models.versions import functions_of
from mark.emulator.aws_server import EmulatedAws
from mark.emulator.config import ACCOUNT, REGION, Draws, EmulatedAwsConfig, LambdaLimits, LifeDraws
from mark.emulator.ec2.account_limits import NEW, NEW_CONCURRENCY, NEW_LISTING_LAG_S, NEW_MEMORY_MB
from mark.emulator.signature import AccessKey
from mark.live.local.heartbeat import keep_beating
from mark.live.local.process_start import begin
from mark.live.local.run_dir import RunFolder
from mark.live.local.running import Running
from mark.simulator.rng import seeds_of, stream

log = logging.getLogger(__name__)

AGENT = "mark.live.processes.agent:run"


async def main(folder: RunFolder, port: int, began_at: float) -> None:
    """Be AWS until SIGTERM."""
    config = emulated_aws(
        folder.settings(), logs=folder.logs, port=port, began_at=began_at, key=key_of(folder.expected())
    )
    serving = asyncio.ensure_future(EmulatedAws(config).serve(lambda url: log.info("answers", extra={"url": url})))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    beating = asyncio.ensure_future(keep_beating())
    with suppress(asyncio.CancelledError):
        await serving
    beating.cancel()


def key_of(running: Running) -> AccessKey:
    """The key of the account, which the service's folder keeps for its processes."""
    return AccessKey(id=running.aws_access_key_id, secret=running.aws_secret_access_key)


def emulated_aws(
    settings: Settings, *, logs: Path, port: int, began_at: float, key: AccessKey | None = None
) -> EmulatedAwsConfig:
    """The account that a service with these settings gets. began_at: what its clock showed first, service time."""
    seed = settings.seed
    seeds = seeds_of(seed, model_names(settings))
    prices = load_prices(settings.prices)
    owned = settings.account.commitments
    world, usual = named_world(settings), LambdaLimits()
    quotas = {code_of_quota(one.family, one.market): one.vcpus for one in world.quotas if settings.simulate.quotas}
    limits = replace(usual, concurrency=world.lambda_concurrency or usual.concurrency)
    is_new = settings.service.aws.account != "grown"
    if is_new:
        quotas = dict(NEW)
        limits = replace(usual, concurrency=NEW_CONCURRENCY, memory_mb=NEW_MEMORY_MB)
    front = front_machines(settings, models=len(model_names(settings)))
    return EmulatedAwsConfig(
        types={item.name: item for item in prices.types},
        commitments=load_commitments(owned) if owned else NO_COMMITMENTS,
        draws=Draws(
            victims=stream(seed, "victims"),
            lambdas=stream(seed, "lambda"),
            # shared instances draw from the service's seed, as in a replay
            lives=lambda model: life_draws(seeds.get(model, seed)),
        ),
        agent=AGENT,
        folder=logs,
        anchor=ClockAnchor(service_at=began_at, speed=0.0),
        world=world,
        seed=seed,
        lambdas=limits,
        quotas=quotas,
        listing_lag_s=NEW_LISTING_LAG_S if is_new else 0.0,
        sells_by_zone=is_new,
        free_plan=settings.service.aws.account == "free",
        front=(front.instance_type, front.count),
        stress=settings.service.stress,
        port=port,
        closed=True,
        names=names_here(settings),
        key=key,
        environment={"MARK_CACHE": str(cache_dir()), "OMP_NUM_THREADS": "1"},
        python_path=tuple(path for path in sys.path if path),  # where a user's own model may lie
    )


def life_draws(seed: int) -> LifeDraws:
    """The simulator's streams of instances' lives."""
    return LifeDraws(
        boots=stream(seed, "boots"),
        wakes=stream(seed, "wakes"),
        spot=cache(lambda pool: stream(seed, f"spot {pool}")),
    )


def names_here(settings: Settings) -> Names:
    """The service as the policies of its roles name it on the emulated AWS."""
    image = settings.rollout.image or ""
    infer = [functions_of(name_of(settings.service.name, model)) for model in model_names(settings)]
    return Names(
        service=settings.service.name,
        region=REGION,
        account=ACCOUNT,
        bucket=bucket_name(settings.service.name, ACCOUNT),
        repository=image.partition("/")[2].partition("@")[0].partition(":")[0],
        sender=settings.rollout.report.sender or "",
        host=settings.rollout.node.name or "",
        infer=tuple(name for both in infer for name in both),
        train=name_of(settings.service.name, TRAIN) if trains_in_function(settings) else "",
        webhook=settings.rollout.alarms.webhook or "",
    )


if __name__ == "__main__":
    begin("aws", parent=int(sys.argv[2]))
    asyncio.run(main(RunFolder(Path(sys.argv[1])), int(sys.argv[3]), float(sys.argv[4])))
