"""A rehearsed month for `mark advise`: `python -m scripts.advice --out DIR`.

A service has a month of load, and its journal of it. `mark advise` reads that journal and says what each change
would have saved. Another month of the same kind, which nobody has seen, is then served as it is and with each of
the first three pieces of advice, by the flags that the advice itself names. What was promised stands beside what
was saved. docs/saving.md has what came of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DAY_S, MINUTES_A_DAY = 86_400, 1440
KNOWN_DAYS = 1
"""Load before the month, which forecasts begin with."""
PIECES = 3
SETTINGS = """model: inception-v3
policies: [mark]
forecaster: last-value
market: on-demand
offerings: {types: [c5.xlarge, c5.large]}
objective: {target: 0.95}
rollout: {shape: ha}
"""


class Piece(NamedTuple):
    """A change, USD a month that it was to save, and that it saved."""

    change: str
    promised_usd: float
    saved_usd: float


def main() -> None:
    """Rehearse, and print promised beside saved; the exit status is 1 where one is off by more than --within."""
    given = _given()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "mark.yaml").write_text(SETTINGS)
    for seed, name in enumerate(("first", "next"), start=given.seed):
        rates = a_month(given.days + KNOWN_DAYS, given.rps, seed)
        lines = "".join(f"{60 * minute},{rate:.3f}\n" for minute, rate in enumerate(rates))
        (given.out / f"{name}.csv").write_text(f"timestamp_s,rate_rps\n{lines}")
    began = time.monotonic()
    _mark(given.out, "simulate", *_month("first", given.days), "--out", "first")
    advice = _mark(given.out, "advise", "--journal", "first", "--config", "mark.yaml", "--days", str(given.days))
    (given.out / "advice.json").write_text(json.dumps(advice, indent=1))
    print(f"{advice['days']:.4g} days, {advice['usd_per_month']:.2f} USD a month under {advice['policy']}")
    print(f"a month of journal and its advice, {len(advice['advice'] + advice['tried'])} changes: {_since(began)}")
    pieces = list(_applied(given.out, given.days, advice["advice"][:PIECES]))
    for piece in pieces:
        off = piece.saved_usd / piece.promised_usd - 1.0
        print(f"{piece.change}: promised {piece.promised_usd:.2f}, saved {piece.saved_usd:.2f} ({off:+.1%})")
    print(f"all of it: {_since(began)}")
    if any(abs(piece.saved_usd / piece.promised_usd - 1.0) > given.within for piece in pieces):
        raise SystemExit(1)


def a_month(days: int, mean_rps: float, seed: int) -> np.ndarray:
    """Rates of the minutes: waves of day and week, noise that lasts an hour, and bursts. shape (minutes,)."""
    rng = np.random.default_rng(seed)
    hours = np.arange(days * MINUTES_A_DAY) / 60
    wave = 1 + 0.55 * np.sin(2 * np.pi * (hours - 9) / 24) + 0.12 * np.sin(2 * np.pi * hours / 168)
    noise, level = np.empty(hours.size), 0.0
    for minute, step in enumerate(rng.normal(0.0, 0.05, hours.size)):
        noise[minute] = level = 0.98 * level + step
    bursts = np.ones(hours.size)
    for start, length in zip(rng.integers(0, hours.size, 3 * days), rng.integers(3, 20, 3 * days), strict=True):
        bursts[start : start + length] = 1.8
    return np.asarray(mean_rps * np.maximum(0.1, wave * bursts * np.exp(noise)))


def _applied(folder: Path, days: int, advice: list[dict[str, Any]]) -> list[Piece]:
    """The month after, as it is and with each piece of advice."""

    def usd_per_month(*flags: str) -> float:
        return float(_mark(folder, "simulate", *_month("next", days), *flags)["runs"][0]["usd_per_month"])

    before, found = usd_per_month(), []
    for one in advice:
        if one["commitments_file"] is not None:
            (folder / "advised.json").write_text(json.dumps(one["commitments_file"]))
        saved = before - usd_per_month(*one["flags"].split())
        found.append(Piece(change=one["change"], promised_usd=one["saved_usd_per_month"], saved_usd=saved))
    return found


def _month(name: str, days: int) -> tuple[str, ...]:
    span = ("--start-s", str(KNOWN_DAYS * DAY_S), "--duration-s", str(days * DAY_S))
    return ("--trace", f"{name}.csv", "--config", "mark.yaml", *span, "--no-reference")


def _mark(folder: Path, *arguments: str) -> dict[str, Any]:
    """The document of a command."""
    command = [str(Path(sys.executable).with_name("mark")), *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True)  # noqa: S603 - our own command
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _since(began: float) -> str:
    return f"{(time.monotonic() - began) / 60:.1f} min"


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for loads, journal and settings")
    parser.add_argument("--days", type=int, default=30, help="length of a month (default: 30)")
    parser.add_argument("--rps", type=float, default=8.0, help="mean load (default: 8)")
    parser.add_argument("--seed", type=int, default=1, help="of the first month; the next one has the next")
    parser.add_argument("--within", type=float, default=0.1, help="tolerance of a saving (default: 0.1)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
