"""MArk's table5."""

from __future__ import annotations

from mark.studies.study import Study, StudyContext


def mark_table5(context: StudyContext) -> Study:
    """Not there yet."""
    raise NotImplementedError(context.seed)
