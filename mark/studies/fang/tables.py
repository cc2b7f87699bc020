"""Tables 2 and 4 of Fang et al.: response quality on one p2.xlarge, and on five g2.2xlarge with five p2.xlarge."""

from __future__ import annotations

from mark.simulator.qos.judge import Jobs
from mark.studies.fang.cases import Cluster, Scope, fang_study
from mark.studies.fang.published import FEWER_ACTIONS_PERCENT, LOAD_OF_TEN, TABLE2, TABLE4
from mark.studies.study import Study, StudyContext

ONE = Cluster(
    name="fang-table2",
    title="Fang et al., table 2: response quality on one p2.xlarge",
    devices={"p2.xlarge": 1},
    load=1.0,
    reported=TABLE2,
    fewer=FEWER_ACTIONS_PERCENT,
)
TEN = Cluster(
    name="fang-table4",
    title="Fang et al., table 4: response quality on five g2.2xlarge and five p2.xlarge",
    devices={"p2.xlarge": 5, "g2.2xlarge": 5},
    load=LOAD_OF_TEN,
    reported=TABLE4,
)
SCOPE_OF_TEN = Scope(
    jobs=Jobs(count=2, job_s=120.0),
    seeds=2,
    iterations=10,
    learned_job_s=300.0,
    tuned_jobs=Jobs(count=1, job_s=60.0),
)
"""Shorter jobs: each has eight times as many queries."""


def fang_table2(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    return fang_study(context, ONE, scope or Scope())


def fang_table4(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    return fang_study(context, TEN, scope or SCOPE_OF_TEN)
