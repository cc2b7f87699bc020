"""A model's cost as Markdown for a pull request: profile, replay, compare with the base branch."""

import argparse
import json
import subprocess
import sys
from pathlib import Path


def mark(*arguments: str) -> str:
    """Run a command of MArk; what it printed. Its own line of error ends this."""
    done = subprocess.run(["mark", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def replayed(config: str, asked: argparse.Namespace) -> dict[str, dict]:
    """The replays of a service by policy, its model measured first where that is asked for."""
    if asked.profile:
        out = str(Path(config).parent / asked.profile)
        mark("profile", "--config", config, "--out", out, "--seconds", asked.seconds, "--json")
    words = ("--config", config, "--trace", asked.trace, "--policy", asked.policy, "--json")
    return {run["policy"]: run for run in json.loads(mark("simulate", *words))["runs"]}


def comment(head: dict[str, dict], base: dict[str, dict]) -> str:
    """The table, a row for each policy, and where the figures come from."""
    first = next(iter(head.values()))
    slo = first["slo"]
    about = (
        f"{first['requests']:,} requests of `{first['trace']}` in {first['duration_s'] / 3600:.1f} h; "
        f"objective: {slo['target']:.1%} within {slo['latency_ms']:.0f} ms."
    )
    lines = [
        f"### What serving `{first['model']}` would cost",
        "",
        about,
        "",
        "| policy | USD | base | change | USD a million | in time |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for policy, run in head.items():
        usd, attained = run["cost_usd"]["total"], run["slo"]["attained"]
        before = base[policy]["cost_usd"]["total"] if policy in base else None
        change = "" if not before else f"{usd / before - 1:+.1%}"
        missed = "" if attained >= run["slo"]["target"] else " (misses the objective)"
        was = "" if before is None else f"{before:.2f}"
        lines.append(
            f"| {policy} | {usd:.2f} | {was} | {change} | {run['usd_per_million']:.2f} | {attained:.2%}{missed} |"
        )
    stand_ins = sorted({text for run in [*head.values(), *base.values()] for text in run["stand_in_profiles"]})
    assumed = sorted({text for run in [*head.values(), *base.values()] for text in run["assumed_profiles"]})
    lines += ["", *(f"- Stand-in profile: {text}." for text in stand_ins)]
    lines += [f"- Assumed profile: {text}." for text in assumed]
    return "\n".join([*lines, ""])


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--config", required=True, help="the service's settings")
parser.add_argument("--base", default="", help="the settings in a checkout of the base branch")
parser.add_argument("--trace", required=True, help="recorded traffic")
parser.add_argument("--policy", default="hedged,reactive", help="policies to replay")
parser.add_argument("--profile", default="", help="profile file beside the settings to measure anew")
parser.add_argument("--seconds", default="20", help="time limit of measuring")
parser.add_argument("--out", type=Path, default=Path("cost.md"), help="file to write")
asked = parser.parse_args()
base = replayed(asked.base, asked) if asked.base else {}
asked.out.write_text(comment(replayed(asked.config, asked), base))
