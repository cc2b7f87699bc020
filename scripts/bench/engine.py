"""Speed, side by side in one run: `make bench`.

Rivals alternate round by round on the same input and the medians are compared, so that a busy machine slows both.
Prints one line per figure with the mark it has to reach.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import simpy
from numpy.typing import NDArray

from mark.catalog.load import model
from mark.catalog.type_sets import PAPER
from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.dispatch.batcher import batch_size
from mark.dispatch.bouncer import predicted_finish_at
from mark.dispatch.policy import Bounced, DispatchPolicy
from mark.domain.demand import Demand, point_forecast
from mark.domain.models.objective import Slo
from mark.domain.models.profile import Evidence, LatencyPoint, Profile, Provenance
from mark.domain.offerings.offering import BatchPolicy, InstanceType, Market, Offering
from mark.domain.plan import PlanRequest
from mark.planner.greedy import plan_greedy
from mark.plugins.load import build_forecaster
from mark.simulator.engine.compiled import Kernel, compiled_kernel
from mark.simulator.engine.data_plane import Engine, EngineSetup
from mark.simulator.experiment import Experiment, ExperimentSpec
from mark.simulator.rng import stream
from mark.simulator.traces.generators import diurnal_floods
from mark.simulator.workload import Workload
from scripts.acceptance.zoo import ZooModel, write_zoo

ROUNDS = 5
SERVERS, LARGEST_BATCH, LOAD = 4, 8, 0.85
SIMPY_REQUESTS = 40_000
"""A round of simpy takes about a second; the engine repeats the same arrivals to be timed over as long."""
SERVED = ("inception-v3", "resnet-50", "bert-base", "nasnet", "opennmt-ende")
"""Models of the service that is replayed."""
MANY, MANY_HOURS = 20, 6
"""Models, and hours, of the service of many models."""
MARK = "import sys; from mark.cli.main import main; main(sys.argv[1:])"
INSIDE = "--inside"
"""Says that this process is the one whose memory is measured."""
Floats = NDArray[np.float64]


def main() -> None:
    """Run all benches, or the one that the command line names."""
    benches: dict[str, Callable[[], None]] = {
        "engine": bench_engine,
        "plan": bench_plan,
        "day": bench_day,
        "week": bench_week,
        "service": bench_service,
        "many": bench_many_models,
    }
    names = [name for name in sys.argv[1:] if name != INSIDE]
    for name in names or benches:
        benches[name]()


def say(what: str, figure: str, mark: str) -> None:
    """One line of the result."""
    print(f"{what:<62} {figure:>26}   {mark}", flush=True)


def an_offering(name: str, *, usd: float, batch_s: dict[int, float], max_batch: int) -> Offering:
    """An offering with a made-up profile: benches time code, not machines."""
    points = tuple(LatencyPoint(batch=size, latency_s=seconds) for size, seconds in batch_s.items())
    provenance = Provenance(evidence=Evidence.ASSUMED, source="bench", formula="made up")
    profile = Profile(model="bench", instance_type=name, points=points, provenance=provenance)
    return Offering(
        instance_type=InstanceType(
            name=name, vcpus=2, memory_gib=4, architecture="amd64", on_demand_usd_per_hour=usd
        ),
        market=Market.ON_DEMAND,
        usd_per_hour=usd,
        profile=profile,
        batch=BatchPolicy(max_batch=max_batch, max_wait_s=0.0),
        capacity_rps=max_batch / profile.latency_s(max_batch),
        boot_s=150.0,
        launch_usd=usd * 135 / 3600,
    )


def bench_engine() -> None:
    """The same M/D/c queue with batching: our engine and simpy, with the same dispatch decisions."""
    batch_s = {size: 0.02 + 0.01 * size for size in range(1, LARGEST_BATCH + 1)}
    offering = an_offering("server", usd=0.1, batch_s=batch_s, max_batch=LARGEST_BATCH)
    rate_rps = LOAD * SERVERS * offering.capacity_rps
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / rate_rps, SIMPY_REQUESTS))
    kernel = compiled_kernel(cache_dir())
    long = np.concatenate([arrivals + turn * arrivals[-1] for turn in range(50)])
    run_engine(kernel, offering, arrivals)  # compiles
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(ROUNDS):
        seconds, engine = run_engine(kernel, offering, long)
        ours.append(events(engine) / seconds)
        began = time.perf_counter()
        latencies, batches = run_simpy(offering, arrivals)
        theirs.append((arrivals.size + batches) / (time.perf_counter() - began))
    agree(run_engine(kernel, offering, arrivals)[1], latencies, batches)
    rate, rival = median(ours), median(theirs)
    say("engine, M/D/c with batches (events = arrivals + batches)", f"{rate / 1e6:.1f} M events/s", ">= 10")
    say("simpy, the same decisions", f"{rival / 1e6:.3f} M events/s", "")
    say("engine / simpy, every request answered alike", f"{rate / rival:.0f} x", ">= 50")


def run_engine(kernel: Kernel, offering: Offering, arrivals: Floats) -> tuple[float, Engine]:
    """Serve the arrivals on SERVERS instances by least finish; seconds it took, and the engine."""
    end = float(np.ceil(arrivals[-1])) + 60.0
    setup = EngineSetup(
        kernel=kernel,
        arrivals=lambda low, high: arrivals[np.searchsorted(arrivals, low) : np.searchsorted(arrivals, high)],
        slo=Slo(latency_s=1.0, target=0.98),
        dispatch=DispatchPolicy(bounced=Bounced.NOWHERE, admission_factor=None),
        overflow=None,
        start_at=0.0,
        duration_s=end,
        rng=np.random.default_rng(0),
        noise=np.random.default_rng(1),
        monitor=None,
    )
    engine = Engine(setup)
    for _ in range(SERVERS):
        engine.add(offering, standby=False)
    began = time.perf_counter()
    engine.run_until(end)
    return time.perf_counter() - began, engine


def events(engine: Engine) -> int:
    """Arrivals and batch completions so far."""
    return engine.served().total + engine.batches()


def run_simpy(offering: Offering, arrivals: Floats) -> tuple[Floats, int]:
    """The same queue as simpy's users write it: a Store and a process per server.

    Returns the latency of each request in order of arrival, and the number of batches.
    """
    env = simpy.Environment()
    largest = offering.batch.max_batch
    batch_s = [0.0] + [offering.profile.latency_s(size) for size in range(1, largest + 1)]
    stores = [simpy.Store(env) for _ in range(SERVERS)]
    free_at = [0.0] * SERVERS
    latencies = np.zeros(arrivals.size)
    batches = 0

    def server(number: int):  # type: ignore[no-untyped-def]
        nonlocal batches
        queue = stores[number]
        while True:
            taken = [(yield queue.get())]
            more = batch_size(len(queue.items) + 1, largest) - 1
            for _ in range(more):
                taken.append((yield queue.get()))  # noqa: PERF401 - a generator cannot yield there
            service_s = batch_s[len(taken)]
            free_at[number] = env.now + service_s
            yield env.timeout(service_s)
            latencies[taken] = env.now - arrivals[taken]
            batches += 1

    def source():  # type: ignore[no-untyped-def]
        for request, at in enumerate(arrivals):
            yield env.timeout(at - env.now)
            finish = [
                predicted_finish_at(
                    env.now,
                    free_at[n],
                    int(free_at[n] > env.now),
                    len(stores[n].items),
                    largest,
                    batch_s[1],
                    batch_s[largest],
                )
                for n in range(SERVERS)
            ]
            yield stores[finish.index(min(finish))].put(request)

    for number in range(SERVERS):
        env.process(server(number))
    env.process(source())  # type: ignore[no-untyped-call]
    env.run()
    return latencies, batches


def agree(engine: Engine, latencies: Floats, batches: int) -> None:
    """Both answered every request alike: as many batches, the same sum and maximum in every second of arrival."""
    seconds = engine.seconds()
    assert engine.served().instance == latencies.size
    assert engine.batches() == batches
    assert abs(seconds.latency_sum_s.sum() - latencies.sum()) < 1e-6 * latencies.sum()
    assert abs(seconds.latency_max_s.max() - latencies.max()) < 1e-9


def bench_plan() -> None:
    """Algorithm 1 for 500, 5,000 and 50,000 instances."""
    for instances in (500, 5_000, 50_000):
        request = a_request(instances)
        plan_greedy(request)
        took: list[float] = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            plan = plan_greedy(request)
            took.append(time.perf_counter() - began)
        count = sum(item.count for item in plan.counts)
        mark = "<= 50 at 5,000" if instances == 5_000 else ""
        say(f"plan, 60 units x 20 offerings, {count:,} instances", f"{median(took) * 1e3:.1f} ms", mark)


def a_request(instances: int) -> PlanRequest:
    """Sixty units of a wave that takes about so many instances of twenty types."""
    rng = np.random.default_rng(3)
    offerings = tuple(
        an_offering(f"type-{k:02d}", usd=float(usd), batch_s={1: float(s)}, max_batch=1)
        for k, (usd, s) in enumerate(zip(rng.uniform(0.08, 0.12, 20), rng.uniform(0.18, 0.22, 20), strict=True))
    )
    peak = instances / min(o.profile.latency_s(1) for o in offerings)
    rates = tuple(float(peak * (0.8 + 0.2 * np.sin(k / 9))) for k in range(60))
    return PlanRequest(
        now=0.0,
        history=Demand(end_at=0.0, mean_rps=(), max_rps=()),
        forecast=point_forecast(0.0, mean_rps=rates, max_rps=rates, source="bench"),
        offerings=offerings,
        running=tuple((o.name, instances // 60) for o in offerings[:10]),
        slo=Slo(latency_s=0.6, target=0.98),
    )


def bench_day() -> None:
    """A generated day at 65 requests/s under each policy, after compilation and training."""
    with TemporaryDirectory() as folder:
        experiment = an_experiment(days=2, start_day=1, cache=Path(folder))
        for policy in ("mark", "greedy-oracle", "sagemaker", "reactive", "static-peak", "lambda-only"):
            experiment.run(policy)
            walls = [experiment.run(policy).wall_s for _ in range(3)]
            say(f"a day at 65 requests/s, {policy}", f"{median(walls):.1f} s", "<= 5")


def bench_week() -> None:
    """Seven days in a process of their own: the largest memory it ever held."""
    if INSIDE not in sys.argv:
        command = [sys.executable, "-m", "scripts.bench.engine", "week", INSIDE]
        subprocess.run(command, check=True)  # noqa: S603 - our own interpreter and module
        return
    with TemporaryDirectory() as folder:
        experiment = an_experiment(days=8, start_day=1, cache=Path(folder))
        result = experiment.run("mark")
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    say(f"7 days, {result.requests / 1e6:.1f} M requests, mark: memory", f"{peak_gib:.2f} GiB", "<= 2")
    say("the same: time", f"{result.wall_s:.1f} s", "")


def bench_service() -> None:
    """A day of a service of models with little load under `hedged`, after compilation: trained here, or before."""
    with TemporaryDirectory() as folder:
        models = []
        for number, name in enumerate(SERVED):
            counts = diurnal_floods(number, 2).rates_rps.reshape(-1, 60).sum(axis=1)
            lines = (f"{60 * minute},{count:g}" for minute, count in enumerate(counts))
            Path(folder, f"{number}.csv").write_text("\n".join(("timestamp,count", *lines)))
            trace = {"file": f"{number}.csv", "start_s": 86_400.0, "mean_rps": 1.0}
            models.append({"model": name, "trace": trace})
        Path(folder, "mark.yaml").write_text(json.dumps({"service": {"serve": models}}))
        brief = ("--duration-s", "60", "--forecaster", "last-value")
        for what, more in (("", brief), ("training included", ()), ("trained before", ())):
            seconds, peak_gib = simulate(Path(folder), *more)
            label = f"{len(SERVED)} models, a day at 1 request/s, hedged, {what}"
            if what:  # the first one compiles
                say(label, f"{seconds:.0f} s of CPU, {peak_gib:.2f} GiB", "")


def bench_many_models() -> None:
    """Six hours of twenty models that learn nothing, under `hedged`, and what a day of a hundred takes by that."""
    rng = stream(1, "many models")
    models = [
        ZooModel(f"model-{number}", float(np.exp(rng.uniform(*np.log((3.0, 300.0))))), 2.0, rng.uniform(0.0, 24.0))
        for number in range(MANY)
    ]
    with TemporaryDirectory() as folder:
        settings = write_zoo(Path(folder), models, seed=1)
        settings.rename(Path(folder, "mark.yaml"))
        brief = ("--forecaster", "last-value", "--market", "on-demand", "--duration-s")
        simulate(Path(folder), *brief, "60")  # compiles
        start_s, _ = simulate(Path(folder), *brief, "60")
        seconds, peak_gib = simulate(Path(folder), *brief, str(MANY_HOURS * 3600))
    label = f"{MANY} models, {MANY_HOURS} h at 1 request/s, hedged, last-value"
    say(label, f"{seconds:.1f} s of CPU, {peak_gib:.2f} GiB", "")
    day_s = start_s + (seconds - start_s) * 100 / MANY * 24 / MANY_HOURS
    say("by that, 100 models for a day", f"{day_s:.0f} s", "<= 60")


def simulate(folder: Path, *more: str) -> tuple[float, float]:
    """CPU seconds of `mark simulate` with a folder's settings, and its largest memory in GiB."""
    command = [sys.executable, "-c", MARK, "simulate", "--config", "mark.yaml", "--policy", "hedged", *more]
    environment = os.environ | {"MARK_CACHE": str(folder), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    child = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"mark simulate failed: {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def an_experiment(*, days: int, start_day: int, cache: Path) -> Experiment:
    """Inception-v3 on demand on generated floods, from `start_day` on; on the paper's types there are batches."""
    workload = Workload(trace=diurnal_floods(5, days), seed=5, start_s=start_day * 86400.0)
    spec = model("inception-v3")
    return Experiment(
        replace(
            ExperimentSpec(
                footprint=footprint_of(Settings()),
                model=spec,
                slo=spec.slo,
                market=Market.ON_DEMAND,
                types=(PAPER,),
                workload=workload,
            ),
            cache_dir=cache,
        ),
        kernel=compiled_kernel(cache_dir()),
        build_forecaster=build_forecaster,
    )


def cache_dir() -> Path:
    """The cache of compiled code, kept between benches."""
    return Path.home() / ".cache" / "mark"


if __name__ == "__main__":
    main()
