"""Changes of a pool within its budget: what may be launched, and what leaves to make room for it. Pure.

Everything that is ordered counts against the budget until it is gone: what boots, serves, drains, and what was
ordered and has not appeared. So a launch never takes more than the rest, and where the rest is too little an
instance that the plan no longer wants leaves first. Only as many leave as the launches that wait need; the others
serve on until all that is wanted is ready. An instance that leaves is drained: it finishes what it has.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from mark.controller.policy import ControllerPolicy
from mark.controller.state import Tokens
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import Drain, Order
from mark.planner.kairos.pool_choice import BUDGET_ROUNDING


class BudgetLimit:
    """The rest of a pool's budget beside what is there and on its way; what is reserved counts from then on.

    An instance of an offering that has no known price takes all of it: nothing is launched before that is gone.
    """

    def __init__(self, policy: ControllerPolicy, fleet: FleetView, requested: Iterable[tuple[str, int]]) -> None:
        self.usd_per_hour: Mapping[str, float] = {}
        self._left_usd = math.inf
        if policy.pool is not None:
            priced = policy.at_spot_prices(dict(fleet.spot_usd_per_hour))
            self.usd_per_hour = {item.name: item.usd_per_hour for item in priced.known_offerings}
            self._left_usd = policy.pool.budget_usd_per_hour * (1 + BUDGET_ROUNDING)
            billed = ((i.offering, 1) for i in fleet if i.state is not InstanceState.STOPPED)
            for name, count in (*billed, *requested):
                self.reserve(name, count)

    @property
    def left_usd(self) -> float:
        """USD an hour that are left; below 0 where what is there has become dearer."""
        return self._left_usd

    def left(self, name: str) -> float:
        """Instances of the offering that the rest buys; infinite without a budget."""
        if math.isinf(self._left_usd):
            return self._left_usd if self._left_usd > 0 else 0.0
        return max(0, math.floor(self._left_usd / self.usd_per_hour.get(name, math.inf)))

    def reserve(self, name: str, count: int) -> None:
        """Count instances against the budget."""
        if count > 0 and math.isfinite(self._left_usd):
            self._left_usd -= count * self.usd_per_hour.get(name, math.inf)


def drain_for_pool(
    fleet: FleetView,
    *,
    wanted: Counter[str],
    have: Counter[str],
    budget: BudgetLimit,
    barred: Callable[[str], bool],
    tokens: Tokens,
) -> list[Order]:
    """Drain what the pool no longer wants, as far as its launches need room; all of it once the pool is ready.

    have: what stays or is on its way, launches of this tick included. barred: whether an offering cannot be
    launched now, so that nothing makes room for it.
    """
    there = fleet.staying
    unwanted = [i for i in fleet if i.role is Role.SERVING and i.stays and i.offering not in wanted]
    for name in sorted(set(there) & set(wanted)):
        same = sorted((i for i in fleet if i.offering == name and i.role is Role.SERVING and i.stays), key=_first)
        unwanted += same[: max(0, there[name] - wanted[name])]
    missing = {name: n - have[name] for name, n in wanted.items() if n > have[name] and not barred(name)}
    ready = Counter(fleet.lasting)
    waiting = any(ready[name] < n for name, n in wanted.items() if not barred(name) or have[name] > ready[name])
    leaving = [i for i in fleet if i.state is not InstanceState.STOPPED and not i.serves_on]
    prices = budget.usd_per_hour
    needed_usd = sum(n * prices[name] for name, n in missing.items() if name in prices) - budget.left_usd
    needed_usd -= sum(prices.get(i.offering, 0.0) for i in leaving)
    freed = _enough(unwanted, prices, needed_usd) if waiting or missing else unwanted
    if not freed:
        return []
    why = "make room for what the pool wants" if waiting or missing else "all that the pool wants is ready"
    ids = tuple(sorted(i.id for i in freed))
    return [Drain(token=tokens.next(), reason=f"{len(ids)} not in the pool: {why}", instances=ids)]


def _first(instance: Instance) -> tuple[bool, float, str]:
    """Order in which instances leave: pending ones serve nobody, then the youngest."""
    return (instance.state is not InstanceState.PENDING, -instance.launched_at, instance.id)


def _enough(unwanted: list[Instance], prices: Mapping[str, float], needed_usd: float) -> list[Instance]:
    """As many as free that sum: pending ones first, then the dearest, so that few leave."""
    freed: list[Instance] = []
    order = sorted(unwanted, key=lambda i: (_first(i)[0], -prices.get(i.offering, math.inf), *_first(i)[1:]))
    for instance in order:
        if needed_usd <= 0:
            break
        needed_usd -= prices.get(instance.offering, math.inf)
        freed.append(instance)
    return freed
