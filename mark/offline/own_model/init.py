"""`mark init`: a commented mark.yaml, or a policy or dispatch rule of one's own, to start from."""

from __future__ import annotations

from pathlib import Path

from mark.domain.errors import Misconfigured
from mark.policies import dispatch_template, hpa_template
from mark.report.files import write_whole
from mark.report.terminal import show

CONFIG_FILE = "mark.yaml"
TEMPLATES = {
    "policy": (hpa_template, "--policy {path}:HPA"),
    "dispatch": (dispatch_template, "--policy kairos --dispatch {path}:SlowestInTime"),
}
"""What is written for a word, and the flags that replay it."""
CONFIG = """\
# What MArk serves, and what it promises. docs/settings.md explains every key; an unknown one is refused.

# How instances are bought: on-demand or spot.
market: spot

# The policy that decides what is rented; `mark policies` lists them.
policies: [hedged]

service:
  name: mark

  # Where clients reach the gateway. Beyond loopback a token is required.
  host: 127.0.0.1
  # port: 8080

  # Two gateways: one may crash, and clients reach the other at once.
  gateways: 2
  # One controller leads, the other waits for its lease.
  controllers: 2

  # A Redis or Valkey of your own; left out, one is started beside the service.
  # store: rediss://user:password@redis.example.com:6380

  aws:
    region: us-east-1
    # No launch that would take the fleet's price above this. `mark deploy` takes one from the plan if you do not.
    # max_usd_per_hour: 10

  serve:
    # A model whose latency is emulated by its profiles: dozens of instances fit on this machine. `mark deploy`
    # refuses it, since instances that are paid for would answer zeros: take it out then.
    - model: resnet-50
      backend: {kind: emulated}
      objective: {latency_ms: 100, target: 0.99}
      # On types that you can rent today, Graviton among them. Those of this set are assumed, by formulas from
      # published ones (docs/hardware.md says which and how): `mark profile` measures a model of yours.
      profiles: [assumed-current]
      # The load to start with, requests/s, until there is a history.
      expected_rps: 40

    # A model in torch, run in the agents' own processes. Yours: path/file.py:Name, or a server's URL
    # with kind oip, tf-serving or invocations; measure it with `mark profile`.
    - model: digits
      backend: {kind: python, target: "mark.models.digits:Digits"}
      market: on-demand
      expected_rps: 5
      # torch is larger than a zip of Lambda may be: for `mark deploy` put the model into an image, or do without.
      # offerings: {overflow: false}

# A trace of your own traffic: what lies before start_s is the history that the forecaster learns from.
# trace: {file: load.csv.gz, start_s: 86400}

# What may be spent in a day and a month (UTC), and what happens then: warn, floor (one instance a model) or pause.
# budget: {daily_usd: 50, monthly_usd: 900, when_reached: floor}

# The service in an AWS account: `mark doctor`, `mark deploy` (docs/deploy.md says what stands behind each key).
# rollout:
#   owner: team@example.com
#   image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/mark:1
#   # Two small nodes carry all of it, 39 USD a month (docs/deploy.md); `shape: ha` is for more, 169 and up.
#   node: {name: api.example.com, certificate: arn:aws:secretsmanager:us-east-1:123456789012:secret:api-AbCdEf}
#   alarms: {to: [team@example.com], max_usd_per_hour: 12}
#   report: {sender: mark@example.com, to: [team@example.com]}

# Seed of all that is drawn on the emulated AWS.
seed: 0
"""


def write_config(out: Path | None, *, force: bool) -> None:
    """Write the file; `out` is its folder unless it ends in .yaml.

    Misconfigured where one is there or it cannot be written.
    """
    path = _write(CONFIG, out, CONFIG_FILE, (".yaml", ".yml"), force=force)
    show(f"wrote {path}; `mark up --config {path}` starts the service")


def write_template(word: str, out: Path | None, *, force: bool) -> None:
    """Write one of TEMPLATES to start from; `out` is its folder unless it ends in .py. Misconfigured as above."""
    template, flags = TEMPLATES[word]
    path = _write(Path(str(template.__file__)).read_text(), out, f"{word}.py", (".py",), force=force)
    show(f"wrote {path}; `mark simulate {flags.format(path=path)}` replays it")


def _write(text: str, out: Path | None, name: str, suffixes: tuple[str, ...], *, force: bool) -> Path:
    place = out or Path()
    path = place if place.suffix in suffixes else place / name
    if path.exists() and not force:
        raise Misconfigured(f"{path} is there already; --force overwrites it, --out names another")
    write_whole(path, text)
    return path
