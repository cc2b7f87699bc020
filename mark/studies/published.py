"""Published figures of the MArk paper, each with its place there.

MArk: C. Zhang, M. Yu, W. Wang, F. Yan, "MArk: Exploiting Cloud Services for Cost-Effective, SLO-Aware Machine
Learning Inference Serving", USENIX ATC 2019, and its journal version in IEEE TCC, 2020. The latencies of figures 7
to 9 are drawn only: there is no number to stand beside ours, only what the text claims.
"""

from __future__ import annotations

from dataclasses import dataclass

ONDEMAND, SPOT, SAGEMAKER = "MArk-ondemand", "MArk-spot", "SageMaker"
SYSTEMS = (ONDEMAND, SPOT, SAGEMAKER)
"""The three systems of table 5 and figure 8, by the paper's names."""
MODELS = ("inception-v3", "nasnet", "lstm-ptb", "opennmt-ende")
"""The four models of table 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One line of table 5, USD for a run of more than 8 h on the Twitter load."""

    ec2_usd: float
    lambda_usd: float | None
    total_usd: float


TABLE5: dict[tuple[str, str], Cost] = {
    ("inception-v3", ONDEMAND): Cost(ec2_usd=20.94, lambda_usd=1.34, total_usd=22.28),
    ("inception-v3", SPOT): Cost(ec2_usd=9.83, lambda_usd=3.2, total_usd=13.03),
    ("inception-v3", SAGEMAKER): Cost(ec2_usd=80.98, lambda_usd=None, total_usd=80.98),
    ("nasnet", ONDEMAND): Cost(ec2_usd=24.21, lambda_usd=0.19, total_usd=24.4),
    ("nasnet", SPOT): Cost(ec2_usd=10.71, lambda_usd=0.81, total_usd=11.52),
    ("nasnet", SAGEMAKER): Cost(ec2_usd=68.1, lambda_usd=None, total_usd=68.1),
    ("lstm-ptb", ONDEMAND): Cost(ec2_usd=6.17, lambda_usd=0.0, total_usd=6.17),
    ("lstm-ptb", SPOT): Cost(ec2_usd=2.24, lambda_usd=0.04, total_usd=2.28),
    ("lstm-ptb", SAGEMAKER): Cost(ec2_usd=14.9, lambda_usd=None, total_usd=14.9),
    ("opennmt-ende", ONDEMAND): Cost(ec2_usd=27.54, lambda_usd=0.12, total_usd=27.66),
    ("opennmt-ende", SPOT): Cost(ec2_usd=10.79, lambda_usd=0.33, total_usd=11.12),
    ("opennmt-ende", SAGEMAKER): Cost(ec2_usd=87.1, lambda_usd=None, total_usd=87.1),
}
"""Table 5."""

TEXT_RATIO: dict[tuple[str, str], float] = {
    ("inception-v3", ONDEMAND): 3.63,
    ("nasnet", ONDEMAND): 2.79,
    ("lstm-ptb", ONDEMAND): 2.41,
    ("opennmt-ende", ONDEMAND): 3.15,
    ("inception-v3", SPOT): 6.21,
    ("nasnet", SPOT): 5.91,
    ("lstm-ptb", SPOT): 6.64,
    ("opennmt-ende", SPOT): 7.83,
}
"""Section 5.2: how many times as much SageMaker costs. LSTM on spot: the text says 6.64, table 5 gives 6.54."""


def table_ratio(model: str, system: str) -> float:
    """SageMaker's total over this system's, both from table 5."""
    return TABLE5[model, SAGEMAKER].total_usd / TABLE5[model, system].total_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Table 4 and section 5.1: N_batch and W_batch on p2.xlarge (None: it has none), N_batch on CPU types."""

    gpu_batch: int | None
    gpu_wait_ms: float | None
    cpu_batch: int


BATCHING: dict[str, Batching] = {
    "inception-v3": Batching(gpu_batch=8, gpu_wait_ms=200.0, cpu_batch=1),
    "nasnet": Batching(gpu_batch=16, gpu_wait_ms=750.0, cpu_batch=1),
    "lstm-ptb": Batching(gpu_batch=None, gpu_wait_ms=None, cpu_batch=1),
    "opennmt-ende": Batching(gpu_batch=16, gpu_wait_ms=490.0, cpu_batch=2),
}

LATENCY_CUT_PERCENT = {ONDEMAND: 57.0, SPOT: 60.0}
"""Section 5.2, on figure 7 (Twitter): by how much latency falls against SageMaker, at most."""
SLO_CLAIM = {
    ONDEMAND: "section 5.2: MArk keeps its objective on both loads",
    SPOT: "section 5.2: MArk keeps its objective on both loads",
    SAGEMAKER: "section 5.2: SageMaker violates the objective, under MMPP far more",
}
"""On figure 8; under MMPP the paper ran SageMaker with Inception-v3 only."""

SURGES = (0.5, 0.75, 1.0)
"""Section 5.3, figure 9a-c: LSTM-ptb, the load rises by these shares within two minutes, from minute 11 on."""
SURGE_MINUTE = 11
SURGE_RISE_S = 120.0
SPOT_FLEET = 20
LOST_SHARES = (0.2, 0.4, 0.8)
"""Section 5.3, figure 9d: Inception-v3 on 20 spot instances; these shares get their notice in minute 7."""
NOTICE_MINUTE = 7
REPLACED_MINUTE = 13
