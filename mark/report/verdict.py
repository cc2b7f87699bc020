"""The verdict: which of four ways to serve a load costs least and keeps its objective, as one value and in words.

The ways are what the user probably runs now, the best autoscaler that a team could build, Lambda alone, and MArk.
`mark simulate`, its page and its JSON make it of replays, a service's mail of the day's replays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict

from mark.catalog.billing import HOURS_PER_MONTH, SECONDS_PER_HOUR
from mark.domain.figures import plural
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import LambdaGuess, LambdaOffering
from mark.policies.bundles import is_own
from mark.report.formatting import (
    finite,
    format_duration,
    less_words,
    pays_from,
    percent,
    usd_per_month_words,
)


class Role(StrEnum):
    """A way to serve a load. In order of effort: of two that cost the same, the first is less work."""

    NOW = "now"
    LAMBDA = "lambda"
    TUNED = "tuned"
    MARK = "mark"


LAMBDA_ONLY = "lambda-only"
"""The policy of Lambda alone."""
EFFORT = {role: place for place, role in enumerate(Role)}
LEAST_COLD = 0.01
"""Share of cold starts that is said."""
LEAST_LESS = 0.005
"""Share from which one cost is called less than another: half a per cent reads as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to serve the load."""

    role: Role
    #: How sentences call it, such as `Lambda alone`.
    words: str
    #: The policy that was replayed; empty for a bill that the user told.
    policy: str
    usd_per_month: float
    #: Share answered in time; None where nobody measured it, or nobody asked.
    attained: float | None
    keeps_objective: bool

    @property
    def is_told(self) -> bool:
        """The user told the bill; nothing was replayed."""
        return not self.policy


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessedLambda:
    """Lambda alone under a load, as a guess: nobody measured it."""

    usd_per_month: float
    #: The instance types that it is taken to be as fast as.
    like: tuple[str, ...]
    #: Share of the calls that would start cold, and by how much these are later.
    cold_share: float
    cold_start_s: float
    #: So many would start cold that an objective is missed.
    is_too_late: bool
    #: The models that nobody measured, where a service has several.
    models: tuple[str, ...] = ()

    @classmethod
    def of(cls, loads: Sequence[tuple[LambdaGuess, float, Slo]], models: tuple[str, ...] = ()) -> GuessedLambda:
        """The guess for one model or more, each with its load, requests/s, and its objective."""
        calls = sum(rps for _, rps, _ in loads)
        cold = sum(rps * guess.overflow.cold_share(rps) for guess, rps, _ in loads)
        usd_per_s = sum(rps * guess.usd_per_request(rps) for guess, rps, _ in loads)
        return cls(
            usd_per_month=usd_per_s * HOURS_PER_MONTH * SECONDS_PER_HOUR,
            like=tuple(sorted({guess.instance_type for guess, _, _ in loads})),
            cold_share=cold / calls if calls > 0 else 1.0,
            cold_start_s=max(guess.overflow.cold_start_s for guess, _, _ in loads),
            is_too_late=any(_starts_too_late(guess.overflow, rps, slo) for guess, rps, slo in loads),
            models=models,
        )

    @property
    def words(self) -> str:
        """`about 1.43 USD a month if it is as fast as c5.large (...)`, and what cold starts do to it."""
        of_whom = f" for {' and '.join(self.models)}" if self.models else ""
        share = percent(round(self.cold_share, 3))
        cold = f"; {share} of the calls would start cold, {self.cold_start_s:g} s later"
        missed = ", and miss the objective" if self.is_too_late else ""
        return (
            f"about {usd_per_month_words(self.usd_per_month)} a month{of_whom} if it is as fast as "
            f"{' and '.join(self.like)} (`mark profile --as lambda` measures that)"
            f"{f'{cold}{missed}' if self.cold_share >= LEAST_COLD or self.is_too_late else ''}"
        )


def _starts_too_late(overflow: LambdaOffering, rps: float, slo: Slo) -> bool:
    is_late = overflow.cold_start_s + overflow.latency_s > slo.judged_s
    return is_late and overflow.cold_share(rps) > 1 - slo.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The options side by side, at most one a role.

    break_even_rps: constant load, requests/s, from which MArk costs less than Lambda alone; None where none does.
    mean_rps: what came, requests/s.
    lambda_guess: what Lambda might cost where nobody measured it. requests: those that were replayed; None where
    that is not told. is_assumed: a latency is a formula, which nobody measured. around_usd_per_month: MArk's own
    nodes and what else stands around its instances; None where that is not told. unsure: models of a service with
    too few requests to judge them.
    """

    #: None for a service, whose models have objectives of their own.
    slo: Slo | None
    options: tuple[Option, ...]
    break_even_rps: float | None = None
    mean_rps: float | None = None
    lambda_guess: GuessedLambda | None = None
    requests: int | None = None
    is_assumed: bool = False
    around_usd_per_month: float | None = None
    unsure: tuple[str, ...] = ()

    @property
    def best(self) -> Option | None:
        """The cheapest that keeps the objective, to the cent; None where none does, or nothing was asked."""
        if self.requests == 0:
            return None
        able = [one for one in self.options if one.keeps_objective]
        return min(able, key=lambda one: (round(one.usd_per_month, 2), EFFORT[one.role]), default=None)

    def option(self, role: Role) -> Option | None:
        """The option of that role; None where it was not compared."""
        return next((one for one in self.options if one.role is role), None)

    @property
    def sentence(self) -> str:
        """The way to run and its cost, then the others from the cheapest on."""
        return " ".join(part for part in self.parts if part)

    @property
    def parts(self) -> tuple[str, str]:
        """The way to run and its cost, and the others."""
        best = self.best
        others = sorted((one for one in self.options if one is not best), key=lambda one: one.usd_per_month)
        first = self._run(best) if best is not None else self._nothing_keeps()
        rest = [self._other(one) for one in others]
        if self.options and not self._has_lambda:
            guessed = "" if self.lambda_guess is None else f": {self.lambda_guess.words}"
            rest.append(f"Lambda alone was not compared{guessed}.")
        return first, " ".join((*rest, *self._doubts))

    @property
    def _doubts(self) -> Iterator[str]:
        """Reasons why the answer is less sure than it reads."""
        if self.requests and self.slo is not None and not self.slo.can_tell(self.requests):
            yield f"Only {plural(self.requests, 'request')} came: too few to tell who keeps the objective."
        if self.requests and self.unsure:
            yield f"Too few requests came for {' and '.join(self.unsure)} to tell who keeps the objective."
        if self.is_assumed:
            yield "A latency is assumed, not measured: measure it with `mark profile` first."

    @property
    def _has_lambda(self) -> bool:
        """Lambda alone was replayed, as what runs now or beside it."""
        return any(one.role is Role.LAMBDA or one.policy == LAMBDA_ONLY for one in self.options)

    @property
    def changes_at(self) -> str:
        """The load at which the answer changes; empty where that is not known."""
        return pays_from(self.break_even_rps, mean_rps=self.mean_rps)

    @property
    def how(self) -> str:
        """The way to Lambda alone, where that is the answer; empty elsewhere."""
        if self.best is None or self.best.role is not Role.LAMBDA:
            return ""
        usd = self.around_usd_per_month
        nodes = "MArk's own nodes" if usd is None else f"MArk's own nodes, {usd_per_month_words(usd)} a month"
        return (
            f"How: try it with `policies: [{LAMBDA_ONLY}]` in the settings and `mark up`. `mark deploy` would add "
            f"{nodes}: to pay for Lambda alone, deploy the model as a function of your own."
        )

    @property
    def lambda_guess_usd_per_month(self) -> float | None:
        """A guess of Lambda alone, USD a month; None where that is known, or cannot be guessed."""
        return None if self.lambda_guess is None or self._has_lambda else self.lambda_guess.usd_per_month

    def _run(self, best: Option) -> str:
        verb = "Keep" if best.role is Role.NOW else "Run"
        unsure = ", if it keeps the objective" if best.is_told else ""
        return f"{verb} {best.words}{unsure}: {usd_per_month_words(best.usd_per_month)} a month{self._less(best)}."

    def _less(self, best: Option) -> str:
        """`, 33 % less than ...`; empty where it is what runs now, or saves nothing."""
        now = self.option(Role.NOW)
        if now is None or now is best or now.usd_per_month <= 0:
            return ""
        share = 1 - best.usd_per_month / now.usd_per_month
        return f", {less_words(share)} than {now.words}" if share >= LEAST_LESS else ""

    def _nothing_keeps(self) -> str:
        if not self.options:
            return ""
        if self.requests == 0:
            return "No request came in this time: replay another stretch (--start-s, --duration-s)."
        if self.slo is None:
            return "Nothing that was replayed keeps every model's objective."
        promise = f"{percent(self.slo.target)} within {format_duration(self.slo.judged_s)}"
        return f"Nothing that was replayed keeps {promise}."

    def _other(self, one: Option) -> str:
        first = f"{one.words[0].upper()}{one.words[1:]}"
        missed = one.attained is not None and not one.keeps_objective
        late = f", but only {percent(one.attained or 0.0, digits=1)} in time" if missed else ""
        return f"{first}: {usd_per_month_words(one.usd_per_month)}{late}."


def usual_words(role: Role, policy: str) -> str:
    """A sentence's name for a way that the user did not name."""
    known = {Role.LAMBDA: "Lambda alone", Role.MARK: "MArk"}
    tuned = "your own policy" if is_own(policy) else "the best autoscaler you could build"
    return known.get(role, f"{tuned} ({policy})")


class OptionObject(TypedDict):
    """One way to serve the load."""

    #: `now` what you probably run, `tuned` the best autoscaler that you could build, `lambda`, `mark`.
    role: str
    words: str
    #: The policy that was replayed; null for a bill that was told.
    policy: str | None
    usd_per_month: float | None
    #: Share in time; null where nobody measured it.
    attained: float | None
    keeps_objective: bool


class VerdictObject(TypedDict):
    """Which of the options costs least and keeps the objective."""

    sentence: str
    #: How to have Lambda alone where that is the answer; null elsewhere.
    how: str | None
    #: Role of the option to run; null where none keeps the objective, or no request came.
    run: str | None
    options: list[OptionObject]
    #: Constant load, requests/s, from which MArk costs less than Lambda alone; null where none does.
    break_even_rps: float | None
    #: What came, requests/s.
    mean_rps: float | None
    #: What Lambda alone might cost a month where nobody measured it, cold starts included; null elsewhere. For a
    #: service, of the models that nobody measured there.
    lambda_guess_usd_per_month: float | None


def verdict_document(verdict: Verdict) -> VerdictObject:
    """The verdict for JSON."""
    best = verdict.best
    return {
        "sentence": verdict.sentence,
        "how": verdict.how or None,
        "run": None if best is None else best.role.value,
        "options": [
            {
                "role": one.role.value,
                "words": one.words,
                "policy": one.policy or None,
                "usd_per_month": finite(one.usd_per_month),
                "attained": finite(one.attained),
                "keeps_objective": one.keeps_objective,
            }
            for one in verdict.options
        ],
        "break_even_rps": finite(verdict.break_even_rps),
        "mean_rps": finite(verdict.mean_rps),
        "lambda_guess_usd_per_month": finite(verdict.lambda_guess_usd_per_month),
    }
