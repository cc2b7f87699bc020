"""Published benchmarks of ResNet-50 and BERT-base on types that AWS rents today, and what is assumed from them.

Rows were chosen by three rules. The figure is that of one batch in one server: where a source keeps several
batches in flight, their items count as one batch. Half precision on accelerators, whatever the runtime takes by
default on CPUs: INT8 runs are another model. Of several runtimes on a type, the fastest with a batch size stated.
A figure of the very instance type is published, one of its chip in another server is a stand-in. What follows
from other figures by a formula is assumed, and is used only where it is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mark.catalog.schema import LAMBDA
from mark.domain.models.profile import Evidence, LatencyPoint, Profile, Provenance

RESNET, BERT, INCEPTION = "resnet-50", "bert-base", "inception-v3"
DEEP_LEARNING_EXAMPLES = "NVIDIA/DeepLearningExamples 729963dd"
NEURON = "aws-neuron/aws-neuron-sdk 81ce03ae, about-neuron/benchmarks/inf2"
PHILSCHMID = "philschmid/aws-neuron-samples 381667c, benchmark/results"
DAWN = "stanford-futuredata/dawn-bench-entries fb27b82, ImageNet/inference"
OPENVINO = "vjsrinivas/deepsparse_openvino_benchmark a4d709f, output/overview_graph_*.svg"
MLPERF = "mlcommons/inference_results_v3.0 1948f9b5b"
SAME_CPU = "m7i and c7i have the same CPU (szilard/GBM-perf issue 56)"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkModel:
    """A model that others benchmarked. `parameters` in millions; `objective` says where the objective is from."""

    name: str
    latency_ms: float
    objective: str
    parameters: float
    is_image: bool


MODELS = (
    BenchmarkModel(
        name=RESNET,
        latency_ms=100.0,
        objective="Clockwork (OSDI 2020): 100 ms; MLPerf inference: 99th percentile",
        parameters=25.6,
        is_image=True,
    ),
    BenchmarkModel(
        name=BERT,
        latency_ms=130.0,
        objective="MLPerf inference, Server, BERT: 130 ms at the 99th percentile "
        "(mlcommons/inference_policies aa927a1, inference_rules.adoc)",
        parameters=110.0,
        is_image=False,
    ),
)
ARCHITECTURES = ("amd64", "arm64")
ACCELERATORS = ("T4", "A10G", "L4", "Inferentia2")


def _profile(
    model: str,
    instance_type: str,
    latency_ms_by_batch: Mapping[int, float],
    *,
    evidence: Evidence,
    source: str,
    date: str,
    machine: str = "",
    formula: str = "",
) -> Profile:
    return Profile(
        model=model,
        instance_type=instance_type,
        points=tuple(
            LatencyPoint(batch=batch, latency_s=round(ms, 4) / 1000) for batch, ms in latency_ms_by_batch.items()
        ),
        provenance=Provenance(
            evidence=evidence, source=source, date=date, machine=machine or instance_type, formula=formula
        ),
    )


RESNET_ON_T4 = {
    1: 3.003,
    2: 3.998,
    4: 5.747,
    8: 8.998,
    16: 15.113,
    32: 28.353,
    64: 53.187,
    128: 100.155,
}
BERT_ON_T4 = {1: 8.58, 2: 8.38, 4: 9.93, 8: 15.02}
PUBLISHED: Mapping[str, tuple[Profile, ...]] = {
    RESNET: (
        _profile(
            RESNET,
            "c5.2xlarge",
            {1: 17.38},
            evidence=Evidence.PUBLISHED,
            source=f"{DAWN}/Intel_resnet50_c5_2xlarge_intelcaffe_cost.json: Intel Caffe",
            date="2018-04-20",
        ),
        _profile(
            RESNET,
            "c5.4xlarge",
            {1: 12.4},
            evidence=Evidence.PUBLISHED,
            source=f"{DAWN}/Intel_resnet50_c59xlarge_intelcaffe.json (whose hardware is c5.4xlarge): Intel Caffe",
            date="2018-04-18",
        ),
        _profile(
            RESNET,
            "m7i.xlarge",
            {1: 4.535},
            evidence=Evidence.PUBLISHED,
            source=f"{OPENVINO} (Xeon 8488C): OpenVINO, 220.51 images/s one after another, read from the chart's "
            "coordinates to 0.1 %; OpenVINO takes bfloat16 on this CPU by default",
            date="2024-12-25",
        ),
        _profile(
            RESNET,
            "g4dn.xlarge",
            RESNET_ON_T4,
            evidence=Evidence.STAND_IN,
            source=f"{DEEP_LEARNING_EXAMPLES}, PyTorch/Classification/ConvNets/triton/resnet50/README.md: Triton, "
            "ONNX Runtime with TensorRT, FP16, offline, mean",
            date="2022-06-28",
            machine="an NVIDIA T4, server not stated",
        ),
        _profile(
            RESNET,
            "g5.xlarge",
            {1: 0.9, 2: 1.05, 4: 1.46, 8: 2.29, 16: 3.89, 32: 6.79, 64: 12.66, 128: 24.32, 256: 47.43},
            evidence=Evidence.STAND_IN,
            source=f"{DEEP_LEARNING_EXAMPLES}, PaddlePaddle/Classification/RN50v1.5/README.md: Paddle-TRT, FP16, "
            "mean, the model alone",
            date="2024-02-20",
            machine="an NVIDIA A10 (g5 has the A10G)",
        ),
        _profile(
            RESNET,
            "inf2.xlarge",
            {1: 0.83, 32: 7.283},
            evidence=Evidence.PUBLISHED,
            source=f"{NEURON}, latency_ and throughput_data_vision_cnn.csv: p50; the larger batch is four of 8 in "
            "flight on two cores (4,393 images/s)",
            date="2025-10-17",
        ),
    ),
    BERT: (
        _profile(
            BERT,
            "c6i.2xlarge",
            {1: 54.055},
            evidence=Evidence.PUBLISHED,
            source=f"{PHILSCHMID}/benchmmark_c6i.2xlarge_bert_base_uncased.csv: PyTorch, FP32, 128 tokens, mean",
            date="2023-02-14",
        ),
        _profile(
            BERT,
            "g4dn.xlarge",
            BERT_ON_T4,
            evidence=Evidence.STAND_IN,
            source=f"{DEEP_LEARNING_EXAMPLES}, TensorFlow2/LanguageModeling/BERT/README.md: FP16, 128 tokens, "
            "mean",
            date="2023-01-24",
            machine="an NVIDIA T4, server not stated",
        ),
        _profile(
            BERT,
            "g5.2xlarge",
            {1: 8.232},
            evidence=Evidence.PUBLISHED,
            source=f"{PHILSCHMID}/benchmmark_g5.2xlarge_bert_base_uncased.csv: PyTorch, FP32, 128 tokens, mean; "
            "without a synchronisation of the GPU, the same from 8 to 256 tokens",
            date="2023-02-14",
        ),
        _profile(
            BERT,
            "inf2.xlarge",
            {1: 0.999, 2: 0.999, 16: 5.974},
            evidence=Evidence.PUBLISHED,
            source=f"{NEURON}, latency_ and throughput_data_encoder.csv: 128 tokens, p50; a batch is two in "
            "flight, one a core (1,998 and 2,674 sequences/s)",
            date="2025-12-19",
        ),
    ),
}
"""By model; milliseconds by batch size."""

RESNET_L4_OVER_T4 = {1: 0.3555 / 0.8124, 8: 0.7988 / 2.1406}
"""Mean latency in MLPerf v3.0, INT8, TensorRT on both: NVIDIA's L4 over Dell's T4, SingleStream, MultiStream."""
BERT_L4_OVER_T4 = {1: 2.390 / 4.812, 8: 427.452 / 1032.08}
"""The same for BERT-large: SingleStream by latency, Offline by throughput."""
GRAVITON3_OVER_8488C = 1.47
"""ResNet-50 at batch 1 in PyTorch (aws/aws-graviton-getting-started issue 355: "~47% worse"), m7g over m7i."""
RESNET_FP32_ON_8488C_MS = 1000 / 39.27
INCEPTION_FP32_ON_8488C_MS = 1000 / 27.29
INCEPTION_FP32_ON_8259CL_MS = 1000 / 16.03
"""ONNX Runtime on m7i.xlarge and m5n.xlarge: images/s in the same charts as OpenVINO's."""
GRAVITON4_OVER_3 = 2.6 / 2.8
"""Sustained clocks of c7g and c8g (instance-type reference of karpenter, 1d92708), GHz."""
RESNET_FP32_ON_T4 = {1: 7.34, 2: 9.29, 4: 13.83, 8: 23.41, 16: 40.58, 32: 77.18}
"""TensorFlow 20.06, FP32 (NVIDIA/DeepLearningExamples, ConvNets/resnet50v1.5), as MArk's artifact served."""


def assumed_current(inception_ms: Mapping[str, float]) -> Iterator[Profile]:
    """Profiles on current types that nobody published.

    inception_ms: milliseconds of one Inception-v3 on MArk's c5 types.
    """

    def assumed(model: str, kind: str, curve: Mapping[int, float], formula: str, source: str) -> Profile:
        return _profile(
            model, kind, curve, evidence=Evidence.ASSUMED, source=source, date="2026-11-22", formula=formula
        )

    newer = INCEPTION_FP32_ON_8488C_MS / INCEPTION_FP32_ON_8259CL_MS
    for size in ("large", "xlarge", "2xlarge", "4xlarge"):
        yield assumed(
            INCEPTION,
            f"c7i.{size}",
            {1: inception_ms[f"c5.{size}"] * newer},
            f"T(c7i.{size}) = T(c5.{size}) x {newer:.4f} (ONNX Runtime on the Xeon 8488C over the 8259CL)",
            f"MArk's artifact; {OPENVINO}; {SAME_CPU}",
        )
    deeper = INCEPTION_FP32_ON_8488C_MS / RESNET_FP32_ON_8488C_MS
    yield assumed(
        INCEPTION,
        "g4dn.xlarge",
        {batch: ms * deeper for batch, ms in RESNET_FP32_ON_T4.items()},
        f"T(b) = that of ResNet-50 in TensorFlow, FP32, on a T4 x {deeper:.4f} (Inception-v3 over ResNet-50, ONNX "
        "Runtime on m7i.xlarge)",
        f"{DEEP_LEARNING_EXAMPLES}, TensorFlow/Classification/ConvNets/resnet50v1.5/README.md; {OPENVINO}",
    )
    yield assumed(RESNET, "c7i.xlarge", {1: 4.535}, "T(c7i.xlarge) = T(m7i.xlarge)", f"{OPENVINO}; {SAME_CPU}")
    on_graviton3_ms = RESNET_FP32_ON_8488C_MS * GRAVITON3_OVER_8488C
    graviton = f"{OPENVINO}; aws/aws-graviton-getting-started issue 355"
    yield assumed(
        RESNET,
        "c7g.xlarge",
        {1: on_graviton3_ms},
        f"T = {RESNET_FP32_ON_8488C_MS:.2f} ms (m7i.xlarge, ONNX Runtime, FP32) x {GRAVITON3_OVER_8488C:g}",
        graviton,
    )
    yield assumed(
        RESNET,
        "c8g.xlarge",
        {1: on_graviton3_ms * GRAVITON4_OVER_3},
        "T(c8g.xlarge) = T(c7g.xlarge) x 2.6 / 2.8 (clocks, GHz)",
        graviton,
    )
    yield assumed(
        RESNET,
        "g6.xlarge",
        {batch: RESNET_ON_T4[batch] * ratio for batch, ratio in RESNET_L4_OVER_T4.items()},
        "T(b) = T(g4dn.xlarge, b) x L4 over T4 in MLPerf v3.0, INT8 (0.3555 / 0.8124 ms for 1, "
        "0.7988 / 2.1406 ms for 8)",
        f"{MLPERF}, closed/NVIDIA/results/L4x1_TRT and closed/Dell/results/XE2420_T4x1_TRT",
    )
    on_ice_lake = f"{PHILSCHMID}/benchmmark_c6i.2xlarge_bert_base_uncased.csv"
    for kind in ("c7i.2xlarge", "m7i.2xlarge"):
        yield assumed(
            BERT,
            kind,
            {1: 54.055},
            f"T({kind}) = T(c6i.2xlarge): no gain of the newer core or of AMX",
            on_ice_lake,
        )
    yield assumed(
        BERT,
        "c7g.2xlarge",
        {1: 54.055},
        "T(c7g.2xlarge) = T(c6i.2xlarge): the 20 to 30 % less of issue 263 are not credited",
        f"{on_ice_lake}; aws/aws-graviton-getting-started issue 263",
    )
    yield assumed(
        BERT,
        "c8g.2xlarge",
        {1: 54.055 * GRAVITON4_OVER_3},
        "T(c8g.2xlarge) = T(c7g.2xlarge) x 2.6 / 2.8 (clocks, GHz)",
        on_ice_lake,
    )
    yield assumed(
        BERT,
        "g5.xlarge",
        {1: 8.232},
        "T(g5.xlarge) = T(g5.2xlarge): the same A10G",
        f"{PHILSCHMID}/benchmmark_g5.2xlarge_bert_base_uncased.csv",
    )
    yield assumed(
        BERT,
        "g6.xlarge",
        {batch: BERT_ON_T4[batch] * ratio for batch, ratio in BERT_L4_OVER_T4.items()},
        "T(b) = T(g4dn.xlarge, b) x L4 over T4 for BERT-large in MLPerf v3.0, INT8 (2.390 / 4.812 ms for 1, "
        "427.452 / 1032.08 sequences/s for 8)",
        f"{MLPERF}, closed/NVIDIA/results/L4x1_TRT and closed/Dell/results/XE2420_T4x1_TRT",
    )


def assumed_lambda(inception_ms: Mapping[str, float], factor: float) -> Iterator[Profile]:
    """Lambda, which nobody published for these models: c5.large's time x `factor` (MArk Table 2)."""
    from_2xlarge = inception_ms["c5.large"] / inception_ms["c5.2xlarge"]
    rule = f"x {from_2xlarge:.4f} (Inception-v3's c5.large / c5.2xlarge) x {factor:g} (Table 2)"
    known = {RESNET: ("c5.2xlarge", 17.38), BERT: ("c6i.2xlarge", 54.055)}
    for model, (kind, single_ms) in known.items():
        yield _profile(
            model,
            LAMBDA,
            {1: single_ms * from_2xlarge * factor},
            evidence=Evidence.ASSUMED,
            source=f"the published profile of {kind}, and those of MArk (IEEE TCC 2020, ATC 2019)",
            date="2026-11-22",
            formula=f"{kind} {rule}",
        )
