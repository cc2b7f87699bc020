"""The words of a supernet: what of it can be left out, and what is (SuperServe, NSDI 2025, section 3)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from statistics import fmean
from typing import Literal, NamedTuple

from mark.domain.errors import Misconfigured

Groups = tuple[tuple[str, ...], ...]
"""Groups of layers that share one choice, each as patterns of names."""


class Control(NamedTuple):
    """The control tuple (D, E, W) that chooses one subnet."""

    #: D: blocks that run in each stage.
    depths: tuple[int, ...]
    #: E: share of each group inside blocks.
    expands: tuple[float, ...]
    #: W: share of each group between blocks.
    widths: tuple[float, ...]

    @property
    def variant(self) -> str:
        """The subnet's name: `d2-4-e0.5-w0.75`; with a share a group where they differ, as in `e0.5-1`."""
        return f"d{'-'.join(map(str, self.depths))}-e{_shares_text(self.expands)}-w{_shares_text(self.widths)}"


def _shares_text(shares: tuple[float, ...]) -> str:
    different = shares if len(set(shares)) > 1 else shares[:1] or (1.0,)
    return "-".join(f"{share:g}" for share in different)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticSpace:
    """Elastic parts of a network, by the names of its modules, and the choices for each.

    `inner` and `outer` are groups of layers, each group a tuple of patterns of names with `*` for any text. The
    layers of a group share one choice: one group for all blocks, or one for each. Layers that no group names keep
    all their outputs, and take as many inputs as come. Of an attention the share is one of its heads.
    """

    #: Sequences of blocks, of which some run: elastic depth.
    stages: tuple[str, ...]
    depths: tuple[int, ...]
    #: Layers whose outputs stay within a block: elastic expand ratio.
    inner: Groups
    expands: tuple[float, ...]
    #: Layers whose outputs leave a block, and those before the first one: elastic width.
    outer: Groups
    widths: tuple[float, ...]
    #: Blocks that run: the first ones, or ones spread evenly over the stage.
    kept: Literal["first", "even"] = "first"

    def __post_init__(self) -> None:
        for name, values in (("depths", self.depths), ("expands", self.expands), ("widths", self.widths)):
            if not values or list(values) != sorted(set(values)):
                raise Misconfigured(f"elastic space: {name} must rise, not {list(values)}")
        if self.stages and self.depths[0] < 1:
            raise Misconfigured("elastic space: a stage runs one block or more")
        for name, shares in (("expands", self.expands), ("widths", self.widths)):
            if not (math.isfinite(shares[-1]) and shares[0] > 0 and shares[-1] == 1.0):
                raise Misconfigured(f"elastic space: {name} are shares above 0, and the last one is 1")
        for name, groups in (("inner", self.inner), ("outer", self.outer)):
            if not all(isinstance(patterns, tuple) and patterns for patterns in groups):
                raise Misconfigured(f"elastic space: each group of {name} is a tuple of patterns, not {groups}")

    def running(self, depth: int) -> tuple[int, ...]:
        """Places of the blocks that run in a stage of that depth."""
        blocks = self.depths[-1]
        return tuple(block if self.kept == "first" else block * blocks // depth for block in range(depth))

    def choices(self, depths: tuple[int, ...]) -> tuple[tuple[tuple[float, ...], ...], ...]:
        """Shares that each group of `inner` and of `outer` can have: 1 alone where its blocks do not run."""
        skipped = tuple(
            f"{stage}.{block}."
            for stage, depth in zip(self.stages, depths, strict=True)
            for block in range(self.depths[-1])
            if block not in self.running(depth)
        )

        def of(groups: Groups, shares: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
            return tuple((1.0,) if all(p.startswith(skipped) for p in patterns) else shares for patterns in groups)

        return of(self.inner, self.expands), of(self.outer, self.widths)

    def __len__(self) -> int:
        return sum(
            math.prod(len(shares) for groups in self.choices(depths) for shares in groups)
            for depths in product(self.depths, repeat=len(self.stages))
        )

    def __contains__(self, control: object) -> bool:
        return (
            isinstance(control, Control)
            and len(control.depths) == len(self.stages)
            and set(control.depths) <= set(self.depths)
            and all(
                len(chosen) == len(groups) and all(map(operator.contains, groups, chosen))
                for chosen, groups in zip(control[1:], self.choices(control.depths), strict=True)
            )
        )

    def controls(self) -> Iterator[Control]:
        """Every control tuple, the smallest first and the largest last."""
        for depths in product(self.depths, repeat=len(self.stages)):
            inner, outer = self.choices(depths)
            for expands, widths in product(product(*inner), product(*outer)):
                yield Control(depths, expands, widths)

    def drawn(self, pick: Callable[[int], int]) -> Control:
        """A subnet by choices made one after another. pick: a place below the number it gets."""
        depths = tuple(self.depths[pick(len(self.depths))] for _ in self.stages)
        inner, outer = self.choices(depths)
        expands = tuple(shares[pick(len(shares))] for shares in inner)
        return Control(depths, expands, tuple(shares[pick(len(shares))] for shares in outer))

    @property
    def smallest(self) -> Control:
        """Fewest blocks and channels."""
        return self.drawn(lambda _: 0)

    @property
    def largest(self) -> Control:
        """All blocks and channels: the network as it was wrapped."""
        return self.drawn(lambda choices: choices - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """A subnet: its cost, and its share of right answers on examples that nothing was learned or chosen by."""

    control: Control
    #: Multiplications and additions for one item.
    macs: int
    #: Size as a network of its own.
    extracted_bytes: int
    accuracy: float
    #: With the largest subnet's statistics in place of its own.
    shared_accuracy: float
    #: Mean cross-entropy on the examples by which the Pareto front was chosen.
    chosen_loss: float

    @property
    def variant(self) -> str:
        """Its name."""
        return self.control.variant


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedSupernet:
    """Figures of a trained supernet. `subnets`: its Pareto front, the cheapest first."""

    name: str
    #: Where the network comes from: path/file.py:Name or module:Name.
    target: str
    seed: int
    epochs: int
    trained_s: float
    #: Subnets that are possible, those that the search evaluated, and those that are calibrated and can be served.
    possible: int
    evaluated: int
    calibrated: int
    #: Examples that were learned from, chosen by, and judged by.
    learned: int
    chosen: int
    judged: int
    #: All weights once and the statistics of all that is calibrated; of these the statistics.
    memory_bytes: int
    statistics_bytes: int
    #: Subnets evenly spaced in cost from the least to the greatest, six at most, and their size when extracted.
    six: tuple[str, ...]
    six_bytes: int
    subnets: tuple[Subnet, ...]

    @property
    def rising(self) -> int:
        """Number of subnets of the front that are more accurate than all cheaper ones; the cheapest is one."""
        most = accumulate((subnet.accuracy for subnet in self.subnets), max)
        return 1 + sum(later > earlier for earlier, later in pairwise(most))

    @property
    def mean_accuracy(self) -> float:
        """Of the front."""
        return fmean(subnet.accuracy for subnet in self.subnets)

    @property
    def mean_shared_accuracy(self) -> float:
        """Of the front, with the largest subnet's statistics for all."""
        return fmean(subnet.shared_accuracy for subnet in self.subnets)

    @property
    def largest_ratio(self) -> float:
        """Bytes that serve all subnets over those of the largest one alone, which is the network itself."""
        return self.memory_bytes / (self.memory_bytes - self.statistics_bytes)

    @property
    def memory_ratio(self) -> float:
        """Bytes that serve all subnets over those of the six extracted ones."""
        return self.memory_bytes / self.six_bytes

    @property
    def front_ratio(self) -> float:
        """Bytes that serve all subnets over those of the front's, extracted."""
        return self.memory_bytes / sum(subnet.extracted_bytes for subnet in self.subnets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actuation:
    """Changing the subnet that answers: in place, and by loading an extracted one's weights from a file."""

    switch_median_s: float
    switch_p99_s: float
    switches: int
    reload_median_s: float
    reloads: int
    #: Largest difference between the scores of subnets and those of the same ones extracted.
    largest_difference: float
    #: Largest score, to compare with.
    largest_score: float
