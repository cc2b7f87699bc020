"""The batching tuner (dynamic batching, MArk section 4.3): largest size of a batch and longest wait to fill it.

A batch of b items takes T_b seconds on a given machine; alone, an item takes T_1, so that the machine answers
mu_nb = 1 / T_1 items per second without batching. The first item of a batch waits up to W for the others and
then T_b for its answer. MArk asks two things of a pair (b, W):

    W + T_b <= RT_max         the slowest item of a batch keeps the objective;
    W + T_b <= b / mu_nb      batching never answers b items later than b single runs one after another would.

Among the pairs that keep both, the largest b / T_b wins: the machine's throughput when it is always busy.
Only profiled batch sizes need a look. Between two points a profile counts the latency of the next larger
point, so a size in between has that point's T_b with fewer items: less throughput, a tighter second inequality.
"""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.offering import BatchPolicy
from mark.domain.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedBatch:
    """The tuner's choice: `batch` (N_batch, W_batch) and `capacity_rps` = N_batch / T_b, when always busy."""

    batch: BatchPolicy
    capacity_rps: float


def tune_batching(profile: Profile, latency_s: float) -> TunedBatch | None:
    """The fastest batch size that keeps both inequalities, with the longest wait they allow.

    Ties go to the smaller batch, which answers sooner. None when no profiled batch keeps `latency_s`: the
    machine is too slow for the objective. Source: MArk section 4.3.
    """
    single_s = profile.latency_s(1)
    best: TunedBatch | None = None
    for point in profile.points:
        batch_s = profile.latency_s(point.batch)
        max_wait_s = min(latency_s, point.batch * single_s) - batch_s
        if max_wait_s < 0:
            continue
        capacity_rps = point.batch / batch_s
        if best is None or capacity_rps > best.capacity_rps:
            policy = BatchPolicy(max_batch=point.batch, max_wait_s=max_wait_s)
            best = TunedBatch(batch=policy, capacity_rps=capacity_rps)
    return best
