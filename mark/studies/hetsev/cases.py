"""Parts that the studies of HetSev share: testbed, models, loads, and the two systems with their parts switched.

HetSev: H. Mo, L. Zhu, L. Shi, S. Tan, S. Wang, Electronics 2023, 12, 240. The paper gives no times, no memory of
an instance and no rates of figures 6 and 7: each of ours has its source or its rule here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.catalog.load import load_prices
from mark.catalog.pairs import Pairs, load_pairs
from mark.domain.models.objective import Slo
from mark.planner.hetsev.gpu_placement import Cluster, Gpu, Needs, PlacementPolicy, Server
from mark.planner.hetsev.scaling import ScalerPolicy
from mark.simulator.fixed.shared_gpus import (
    GpuPrices,
    SharedGpus,
    SharedLoad,
    SharedModel,
    SharedRun,
    SharingRules,
    Times,
)
from mark.simulator.traces.trace import Trace
from mark.studies.study import StudyContext

Floats = NDArray[np.float64]

T4, V100 = "T4", "V100"
KINDS = (T4, V100)
HETSEV, KUBERNETES = "HetSev", "Kubernetes"
TYPES_ONLY, SHARING_ONLY = "types only", "sharing only"
"""The ablation: HetSev's choice of type with one instance a GPU, and shared GPUs with types drawn."""

MODELS = ("resnet-50", "inception-v3", "ssd-resnet50", "transformer")
BATCH = {"resnet-50": 8, "inception-v3": 8, "ssd-resnet50": 4, "transformer": 2}
RT_MAX_S = {"resnet-50": 0.4, "inception-v3": 0.6, "ssd-resnet50": 0.9, "transformer": 1.2}
SIZE_GB = {"resnet-50": 0.090, "inception-v3": 0.083, "ssd-resnet50": 0.077, "transformer": 0.168}
SL_MIN = 0.98
"""Section 6: batch sizes, objectives, and Table 1."""
COST_GB_S = {T4: 0.024, V100: 0.191}
"""Section 6.3; per GB and second, normalised. 0.191 is 3.06 USD/h of p3.2xlarge over its 16 GB, an hour."""
RENTED_AS = {T4: "g4dn.xlarge", V100: "p3.2xlarge"}
"""EC2's type with one such GPU. p3.2xlarge's V100 has 16 GB, the testbed's 32."""

CONTEXT_GB = 0.5
"""GPU memory of a CUDA context, assumed."""
ITEM_GB = 0.05
"""GPU memory of an item's activations, assumed."""

_RESNET_MS: Mapping[str, Mapping[int, float]] = {
    V100: {1: 5.374, 2: 5.901, 4: 6.940, 8: 9.751},
    T4: {1: 7.34, 2: 9.29, 4: 13.83, 8: 23.41},
}
_RESNET_BEST_RPS = {V100: 1414.99, T4: 429.83}
"""NVIDIA/DeepLearningExamples 1d4211fe, TensorFlow/Classification/ConvNets/resnet50v1.5: FP32, V100 32 GB, T4."""
_INCEPTION_OVER_RESNET = 98.4 / 63.9
"""Native TensorFlow, FP32, on a TX2 (NVIDIA's tf_to_trt_image_classification): nobody published V100 and T4."""
_SSD_V100_RPS, _SSD_V100_BEST_RPS = 163.38, 177.75
"""NVIDIA/DeepLearningExamples 3306ea2a, TensorFlow/Detection/SSD: SSD320 with ResNet-50, FP32, V100 16 GB.

Batch 4 and the best. On a T4 it is taken to be as much slower as ResNet-50 is at that batch.
"""
_TOKENS_RPS = {V100: (110.0, 511.0, 1773.0), T4: (34.0, 198.0, 677.0)}
"""NVIDIA/FasterTransformer a44c3813, docs/decoder_guide.md: TF, FP32, beam 4, batch 1, 8 and 128; tokens/s."""
_SENTENCE_TOKENS = 67_092 / (24 * 128)
"""The same page: 67,092 tokens in 24 batches of 128 sentences."""
ALONE_SHARE = 1 / 2.76
"""Section 3.1: three replicas use 2.76 times as much of a GPU as one, so one uses at most so much of it."""
SERVING_S_PER_IMAGE = (116.887 - 86.897) / 32_000
"""TensorFlow Serving beyond TensorFlow alone, ResNet-50 on a V100, batch 10 (gist shaowei-su/721ef199, 2019)."""
AS_FIGURE_1, AS_MEASURED = "figure 1", "TF Serving"
"""Time beside the GPU: what leaves a lone V100 idle as the paper saw it, or what was measured elsewhere."""


def _gpu_ms(model: str, kind: str) -> tuple[float, float]:
    """A batch of the paper's size on the GPU alone, ms, and the best rate at any batch, items/s."""
    batch = BATCH[model]
    resnet = _RESNET_MS[kind]
    if model == "resnet-50":
        return resnet[batch], _RESNET_BEST_RPS[kind]
    if model == "inception-v3":
        return resnet[batch] * _INCEPTION_OVER_RESNET, _RESNET_BEST_RPS[kind] / _INCEPTION_OVER_RESNET
    if model == "ssd-resnet50":
        slower = resnet[batch] / _RESNET_MS[V100][batch]
        return 1000 * batch / _SSD_V100_RPS * slower, _SSD_V100_BEST_RPS / slower
    one, eight, most = _TOKENS_RPS[kind]
    one_ms, eight_ms = (1000 * _SENTENCE_TOKENS * n / rate for n, rate in ((1, one), (8, eight)))
    return one_ms + (eight_ms - one_ms) * (batch - 1) / 7, most / _SENTENCE_TOKENS


def shared_model(model: str, serving: str = AS_FIGURE_1) -> SharedModel:
    """One of the paper's four models on both types of GPU.

    The Transformer's times are those of TensorFlow's loop over tokens and leave the GPU idle enough as they are.
    """
    times = {}
    served_s = _gpu_ms(model, V100)[0] / 1000 * (1 / ALONE_SHARE - 1)
    if serving == AS_MEASURED:
        served_s = SERVING_S_PER_IMAGE * BATCH[model]
    for kind in KINDS:
        gpu_ms, best_rps = _gpu_ms(model, kind)
        gpu_s, service_s = gpu_ms / 1000, gpu_ms / 1000 + served_s
        if model == "transformer":
            gpu_s, service_s = gpu_s * ALONE_SHARE, gpu_s
        times[kind] = Times(service_s=service_s, gpu_s=gpu_s, best_rps=best_rps)
    return SharedModel(
        name=model,
        batch=BATCH[model],
        slo=Slo(latency_s=RT_MAX_S[model], target=SL_MIN),
        needs=Needs(gpu_gb=CONTEXT_GB + SIZE_GB[model] + ITEM_GB * BATCH[model], cores=2.0, memory_gb=2.0),
        times=times,
    )


def testbed() -> Cluster:
    """Section 6: eight servers with 40 threads and 62 GB, four with two T4 (16 GB), four with two V100 (32 GB)."""
    gpus = [
        Gpu(name=f"{kind}-{n}", kind=kind, gpu_gb=gpu_gb, server=f"{kind}-server-{n // 2}")
        for kind, gpu_gb in ((T4, 16.0), (V100, 32.0))
        for n in range(8)
    ]
    servers = {gpu.server: Server(name=gpu.server, cores=40.0, memory_gb=62.0) for gpu in gpus}
    return Cluster(servers=servers, gpus={gpu.name: gpu for gpu in gpus}, tenants={})


CLIENTS, OPEN = "clients", "open"
"""Loads: the paper's clients, each with one request at a time, and Poisson arrivals that wait for no answer."""

SYSTEMS: dict[str, SharingRules] = {
    HETSEV: SharingRules(by_cost=True, placement=PlacementPolicy()),
    TYPES_ONLY: SharingRules(by_cost=True, placement=PlacementPolicy(share=False)),
    SHARING_ONLY: SharingRules(by_cost=False, placement=PlacementPolicy()),
    KUBERNETES: SharingRules(by_cost=False, placement=PlacementPolicy(share=False)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Extent of a study: a short one compresses the loads."""

    #: Lengths are multiplied by it.
    length: float = 1.0
    #: Random states of the comparison with the integer program.
    states: int = 10_000


def run(
    system: str,
    loads: Mapping[str, SharedLoad],
    context: StudyContext,
    *,
    serving: str = AS_FIGURE_1,
    **changes: Any,
) -> SharedRun:
    """The loads on the testbed under a system; `changes` are fields of its rules."""
    prices = load_prices()
    usd = {kind: prices.instance_type(name).on_demand_usd_per_hour for kind, name in RENTED_AS.items()}
    return SharedGpus(
        testbed(),
        [(shared_model(name, serving), load) for name, load in loads.items()],
        replace(SYSTEMS[system], **changes),
        pairs=pairs_of(context.pairs),
        prices=GpuPrices(cost_gb_s=COST_GB_S, usd_per_hour=usd),
        seed=context.seed,
    ).run()


def pairs_of(path: Path | None) -> Pairs:
    """The pairs of a file, checked for each pair of the paper's models, or the shipped ones."""
    pairs = load_pairs("hetsev" if path is None else path)
    for model in MODELS:
        for beside in MODELS:
            if model != beside:
                pairs.slowdown(model, beside)
    return pairs


def intervals(duration_s: float) -> int:
    """Intervals of 15 s."""
    return max(2, round(duration_s / ScalerPolicy().interval_s))


SHAPE = ((0.0, 0.0), (0.25, 0.12), (0.45, 0.05), (0.58, 0.12), (0.6, 1.0), (0.75, 1.0), (0.82, 0.3), (1.0, 0.15))
"""The production load: part of its length, and of the way from valley to peak. The paper draws it only.

Low until 3,500 of 6,000 s (0.583), then a spike within the 120 s over which its rates are averaged.
"""


def production(duration_s: float, valley: float, peak: float, trace: Trace | None = None) -> Floats:
    """Items/s by interval, from valley to peak; a trace gives the shape instead, smoothed over 120 s."""
    count = intervals(duration_s)
    if trace is None:
        at = (np.arange(count) + 0.5) / count
        way = np.interp(at, [part for part, _ in SHAPE], [share for _, share in SHAPE])
    else:
        edges = np.linspace(0, len(trace.rates_rps), count + 1)
        total = np.concatenate(([0.0], np.cumsum(trace.rates_rps)))
        rates = np.diff(np.interp(edges, np.arange(total.size), total))
        rates = np.convolve(np.pad(rates, (4, 3), mode="edge"), np.ones(8) / 8, mode="valid")
        way = (rates - rates.min()) / max(float(np.ptp(rates)), 1e-9)
    rates_rps: Floats = valley + (peak - valley) * way
    return rates_rps


def assumptions() -> tuple[str, ...]:
    """Assumptions of every study of HetSev."""
    return (
        (
            "GPU times are NVIDIA's of TensorFlow, FP32, on V100 and T4; Inception-v3 is ResNet-50's x 1.54 "
            "and SSD on a T4 that on a V100 x 1.99. Serving adds what leaves a lone V100 busy 36 % of the time "
            "(section 3.1: three replicas use 2.76x as much of it as one); with TF Serving's 0.94 ms an image "
            "ResNet-50 keeps it busy 57 %."
        ),
        (
            "Memory of an instance: 0.5 GB, its weights, and 0.05 GB an item of its batch; 2 threads and 2 GB of "
            "its server."
        ),
        (
            "Beside busy neighbours a batch takes longer by the pairs file (iGniter's V100: 13 and 7 % for "
            "ResNet-50 and SSD, the mean 9.7 % for pairs that nobody published), and by the demands' sum above 1."
        ),
        (
            "An interval of 15 s, a minute over 80 %, a cool-down of 300 s, a launch of 60 s and lambda = 1/60: "
            "the paper gives only the 80 %. Both systems size for W / 0.8 and have the same windows."
        ),
        (
            "Requests of a model wait in one queue; the instance that has been idle longest takes the next. "
            "Clients: as many as send the rate while nobody waits, each with one batch at a time."
        ),
    )
