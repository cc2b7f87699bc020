"""A rollout from nothing to nothing on ministack: `python -m scripts.rehearsal.run [PART ...]`, some minutes.

`newcomer`: from `mark init` to the first report by mail. `deploy`: what `mark deploy` does when something fails.
`cdk`: CDK's command line and the AWS CLI instead of it. `move`: from one shape to the other. `sharing`: three
models that share instances, with packages of their own. `trial`: a stranger's first day, in three regions or in
those that `--region` names. Each step says what it found; the first that is not as it should be ends it with
status 1. What the service does when it runs is rehearsed elsewhere: by the live service.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.rehearsal import cdk, deploy, ministack, move, newcomer, sharing, trial
from scripts.rehearsal.folder import Failed, RehearsalFolder
from scripts.rehearsal.settings import SERVICE, lay_bundles, settings

Step = Callable[[RehearsalFolder], str]
PARTS: Mapping[str, tuple[Step, ...]] = {
    "newcomer": (
        newcomer.begins_with_a_file,
        newcomer.builds_what_the_deploy_asks_for,
        newcomer.asks_the_doctor,
        newcomer.deploys,
        newcomer.hears_of_an_interruption,
        newcomer.keeps_what_nobody_can_read,
        newcomer.gets_its_first_report,
        newcomer.removes_it_all,
    ),
    "deploy": (
        deploy.deploys_and_differs_in_nothing,
        deploy.updates_one_setting,
        deploy.replaces_the_stores_passwords,
        deploy.takes_back_what_fails,
        deploy.goes_on_after_a_kill,
        deploy.refuses_two_at_once,
        deploy.destroys_all_but_the_archive,
    ),
    "cdk": (
        cdk.deploys_with_cdk,
        cdk.updates_one_setting_with_cdk,
        cdk.takes_back_what_fails_with_cdk,
        cdk.destroys_with_cdk,
        cdk.deploys_with_the_aws_cli,
    ),
    "move": (
        move.deploys_both_shapes_beside_each_other,
        move.gives_the_second_the_firsts_token,
        move.removes_the_first,
    ),
    "sharing": (
        sharing.lays_three_models,
        sharing.refuses_what_does_not_resolve,
        sharing.deploys_them,
        sharing.plans_to_share,
        sharing.serves_them_from_the_bucket,
        sharing.removes_them,
    ),
    "trial": (
        trial.begins_with_a_file,
        trial.builds_what_the_deploy_asks_for,
        trial.asks_the_doctor,
        trial.deploys,
        trial.tries_it,
        trial.goes_over_or_says_why_not,
        trial.removes_it_all,
    ),
}


def rehearse(parts: Sequence[str], regions: Sequence[str] = trial.REGIONS) -> None:
    """All steps of these parts, the trial's in each region; Failed where one is not as it should be."""
    for part in parts:
        for region in regions if part == "trial" else (ministack.HOME,):
            _rehearse_one(part, region)


def _rehearse_one(part: str, region: str) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="mark-rehearsal-") as folder,
        ministack.running(region=region) as aws,
    ):
        there = _place(part, Path(folder) / part, aws)
        for step in PARTS[part]:
            began = time.monotonic()
            print(f"{part} in {region}: {step.__name__.replace('_', ' ')} ...", flush=True)
            print(f"  {step(there)} ({time.monotonic() - began:.0f} s)", flush=True)


def _place(part: str, folder: Path, aws: Mapping[str, str]) -> RehearsalFolder:
    """An empty folder for the newcomer; for the others one with settings and bundles."""
    if part in ("newcomer", "trial"):
        return RehearsalFolder(folder, aws, service="mark")
    lay_bundles(folder / "bundles")
    if part == "sharing":
        return RehearsalFolder(folder, aws, service=sharing.SERVICE, config=sharing.config())
    return RehearsalFolder(folder, aws, service=SERVICE, config=settings("ha"))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; SystemExit where a step failed."""
    parser = argparse.ArgumentParser(prog="python -m scripts.rehearsal.run", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all when left out")
    parser.add_argument(
        "--region", action="append", choices=trial.REGIONS, help="of the part trial; all when left out"
    )
    asked = parser.parse_args(arguments)
    for part in asked.parts:
        if part not in PARTS:
            parser.error(f"unknown part {part!r}; known: {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # its servers end with it
    began = time.monotonic()
    try:
        rehearse(asked.parts or tuple(PARTS), asked.region or trial.REGIONS)
    except Failed as error:
        sys.exit(f"failed: {error}")
    print(f"all as it should be, in {(time.monotonic() - began) / 60:.1f} min")


if __name__ == "__main__":
    main()
