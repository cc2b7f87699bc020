"""The batching tuner (dynamic batching, MArk section 4.3): largest size of a batch and longest wait to fill it.

A batch of b items takes T_b seconds on a given machine; alone, an item takes T_1, so that the machine answers
mu_nb = 1 / T_1 items per second without batching. The first item of a batch waits up to W for the others and
then T_b for its answer. MArk asks two things of a pair (b, W):

    W + T_b <= RT_max         the slowest item of a batch keeps the objective;
    W + T_b <= b / mu_nb      batching never answers b items later than b single runs one after another would.

Among the pairs that keep both, the largest b / T_b wins: the machine's throughput when it is always busy.
Only profiled batch sizes need a look. Between two points a profile counts the latency of the next larger
point, so a size in between has that point's T_b with fewer items: less throughput, a tighter second inequality.

Where requests have sizes, the size of a batch is chosen in items all the same; how many requests a second that is
follows from how requests fill a batch (`capacity_rps`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mark.domain.load.sizes import SizeDistribution
from mark.domain.models.profile import Profile
from mark.domain.offerings.offering import BatchPolicy

SETTLED = 1e-12
"""The distribution of a batch's first request is known when no probability moves by more."""
MOST_STEPS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedBatch:
    """The tuner's choice: `batch` (N_batch, W_batch) and `capacity_rps`, the requests/s when always busy."""

    batch: BatchPolicy
    capacity_rps: float


def tune_batching(profile: Profile, latency_s: float, sizes: SizeDistribution | None = None) -> TunedBatch | None:
    """The fastest batch size that keeps both inequalities, with the longest wait they allow.

    Ties go to the smaller batch, which answers sooner. None when no profiled batch keeps `latency_s`: the
    machine is too slow for the objective. Source: MArk section 4.3.
    """
    single_s = profile.latency_s(1)
    best: BatchPolicy | None = None
    most_items_per_s = 0.0
    for point in profile.points:
        batch_s = profile.latency_s(point.batch)
        max_wait_s = min(latency_s, point.batch * single_s) - batch_s
        if max_wait_s < 0:
            continue
        items_per_s = point.batch / batch_s
        if best is None or items_per_s > most_items_per_s:
            best, most_items_per_s = BatchPolicy(max_batch=point.batch, max_wait_s=max_wait_s), items_per_s
    if best is None:
        return None
    return TunedBatch(batch=best, capacity_rps=capacity_rps(profile, best.max_batch, sizes))


def capacity_rps(profile: Profile, max_batch: int, sizes: SizeDistribution | None = None) -> float:
    """Requests/s of a machine that is always busy with batches of at most `max_batch` items.

    Without sizes each request is one item. With them a batch takes requests in order until the next no longer
    fits (`mark.dispatch.batcher`), and one that is larger than a batch goes alone.
    """
    if sizes is None:
        return max_batch / profile.latency_s(max_batch)
    return _packed_rps(profile, max_batch, sizes)


@lru_cache(maxsize=256)
def _packed_rps(profile: Profile, max_batch: int, sizes: SizeDistribution) -> float:
    """Requests of a batch over its seconds, both on average over many batches in a row.

    The first request of a batch is the one that no longer fitted into the batch before: a Markov chain over sizes.
    Behind a first request of size s, a batch comes to hold x items on its way with probability `reached[x - s]`,
    the renewal mass of the sizes, and ends there if the next request is larger than the room left.
    """
    batch_s = np.array([0.0, *profile.latencies_s(max(max_batch, sizes.largest))])
    size, share = np.array(sizes.sizes), np.array(sizes.probabilities)
    one = np.bincount(size[size <= max_batch], share[size <= max_batch], minlength=max_batch + 1)
    reached = np.zeros(max_batch + 1)
    reached[0] = 1.0
    for items in range(1, max_batch + 1):
        reached[items] = one[1 : items + 1] @ reached[items - 1 :: -1][:items]
    too_large = np.clip(1.0 - np.cumsum(one), 0.0, 1.0)[::-1]  # by the items held
    ends_s = too_large * batch_s[: max_batch + 1]
    visits = np.concatenate(
        (np.zeros(sizes.largest + max_batch), np.cumsum(reached))
    )  # up to 0, 1, ... items more
    room = max_batch - size
    zero = sizes.largest + max_batch
    alone = room < 0
    requests = np.where(alone, 1.0, visits[zero + room])
    seconds = np.array(
        [batch_s[s] if s > max_batch else reached[: max_batch - s + 1] @ ends_s[s:] for s in sizes.sizes]
    )
    left = np.maximum(room[:, None] - size[None, :], -zero)
    follows = share * np.where(alone[:, None], 1.0, (visits[zero + room][:, None] - visits[zero + left]))
    first = share
    for _ in range(MOST_STEPS):
        # Half of a step: a chain that alternates settles too.
        after = (first + first @ follows) / 2
        after /= after.sum()
        settled = np.abs(after - first).max() < SETTLED
        first = after
        if settled:
            break
    return float(first @ requests / (first @ seconds))
