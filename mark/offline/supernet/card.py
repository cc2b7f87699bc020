"""A supernet's figures in sentences and rows: for the terminal, and for the card in its folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mark.domain.models.profile import Profile
from mark.domain.supernet import Actuation, Subnet, TrainedSupernet

KB, MILLION = 1000, 1e6
SHOWN_BATCHES = (1, 8, 32)
ABOUT_SIX = "six subnets evenly spaced in cost from the smallest to the largest"


def sentences(trained: TrainedSupernet, actuation: Actuation) -> Iterator[str]:
    """Measurements of the supernet: its front, statistics, equality, switching, memory."""
    yield (
        f"front: by cost and mean loss on the {trained.chosen:,} examples that chose it; on the "
        f"{trained.judged:,} that judge it {trained.rising} of the {len(trained.subnets)} are more accurate than "
        "all cheaper ones"
    )
    if trained.statistics_bytes:
        yield (
            f"SubnetNorm: {_percent(trained.mean_accuracy)} right on average over the front with statistics of "
            f"each subnet; {_percent(trained.mean_shared_accuracy)} with the largest one's for all"
        )
    yield (
        f"extracted: scores differ by {actuation.largest_difference:.1e} at most (scores up to "
        f"{actuation.largest_score:.1f}) from those of the same subnets as networks of their own"
    )
    ratio = actuation.reload_median_s / actuation.switch_median_s
    yield (
        f"switching: {_ms(actuation.switch_median_s)} ms (median of {actuation.switches:,}; 99 %: "
        f"{_ms(actuation.switch_p99_s)} ms); reloading weights instead: {_ms(actuation.reload_median_s)} ms "
        f"(median of {actuation.reloads}), {ratio:.0f} times as long"
    )
    yield (
        f"memory: {_kb(trained.memory_bytes)} serve {trained.calibrated} subnets, "
        f"{trained.largest_ratio:.2f} times the largest one alone; {len(trained.six)} extracted ones need "
        f"{_kb(trained.six_bytes)}: 1/{1 / trained.memory_ratio:.2f} ({ABOUT_SIX}); against the "
        f"{len(trained.subnets)} of the front: 1/{1 / trained.front_ratio:.2f}"
    )


def provenance(profiles: Sequence[Profile]) -> str:
    """Origin of the latencies: by whom, where and when they were measured."""
    known = profiles[0].provenance
    return f"{known.evidence.value} for {profiles[0].instance_type}, {known.machine}, {known.date}"


def columns(profiles: Sequence[Profile]) -> list[str]:
    """Titles of the figures of a variant."""
    batches = [f"ms/{batch}" for batch in _batches(profiles[0])]
    return ["M MACs", "kB", "accuracy", "shared", *batches]


def cells(subnet: Subnet, profile: Profile) -> list[str]:
    """Figures of a variant."""
    return [
        f"{subnet.macs / MILLION:.2f}",
        f"{subnet.extracted_bytes / KB:.0f}",
        _percent(subnet.accuracy),
        _percent(subnet.shared_accuracy),
        *(f"{_ms(profile.latency_s(batch))}" for batch in _batches(profile)),
    ]


ABOUT_COLUMNS = (
    "M MACs: millions of multiplications and additions for one item; kB: size as a network of its own",
    "accuracy: on held-out examples; shared: the same with the largest subnet's statistics",
    "ms/N: time of a batch of N, its switch included",
)


def card_text(trained: TrainedSupernet, actuation: Actuation, profiles: Sequence[Profile]) -> str:
    """The card in Markdown."""
    titles = ["variant", *columns(profiles)]
    rows = [
        [f"`{subnet.variant}`", *cells(subnet, profile)]
        for subnet, profile in zip(trained.subnets, profiles, strict=True)
    ]
    least, most = (_percent(trained.subnets[place].accuracy) for place in (0, -1))
    made = (
        f"A supernet of `{trained.target}`, made by `mark supernet train`: one network with {trained.possible:,} "
        f"subnets. {trained.evaluated:,} were evaluated; the {len(trained.subnets)} on the Pareto front are "
        f"its variants. The cheapest is {least} right, the most expensive {most}."
    )
    how = (
        f"Seed {trained.seed}, {trained.epochs} epochs, {trained.trained_s:.0f} s on one thread. "
        f"{trained.learned:,} examples were learned from, {trained.chosen:,} others chose the variants, "
        f"{trained.judged:,} others judge them. Latencies: {provenance(profiles)}."
    )
    lines = [
        f"# {trained.name}",
        "",
        made,
        "",
        how,
        "",
        *(f"- {sentence}" for sentence in sentences(trained, actuation)),
        "",
        _row(titles),
        _row(["---", *("---:" for _ in titles[1:])]),
        *(_row(row) for row in rows),
        "",
        *(f"- {text}" for text in ABOUT_COLUMNS),
        "",
    ]
    return "\n".join(lines)


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _batches(profile: Profile) -> list[int]:
    known = [point.batch for point in profile.points]
    return [batch for batch in SHOWN_BATCHES if batch in known] or known[:1]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3f}"


def _kb(size: int) -> str:
    return f"{size / KB:,.0f} kB"
