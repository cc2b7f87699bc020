"""MArk's fig9."""

from __future__ import annotations

from mark.studies.study import Study, StudyContext


def mark_fig9(context: StudyContext) -> Study:
    """Not there yet."""
    raise NotImplementedError(context.seed)
