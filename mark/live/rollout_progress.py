"""The progress of a served model's rollout, from what is known of its offerings and objective."""

from __future__ import annotations

from collections.abc import Sequence

from mark.domain.models.versions import ModelVersions, RolloutProgress, VersionCounts, rollout_progress
from mark.service_spec import ServedModel


def progress_of(
    served: ServedModel, versions: ModelVersions, counts: Sequence[VersionCounts], now: float
) -> RolloutProgress | None:
    """The progress of the rollout that runs, as in `rollout_progress`; None without one."""
    boot_s = max((one.boot_s for one in served.offerings), default=0.0)
    return rollout_progress(versions, counts, now=now, boot_s=boot_s, target=served.slo.target)
