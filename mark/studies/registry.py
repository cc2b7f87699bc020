"""The studies by name: what `mark reproduce` offers."""

from __future__ import annotations

from collections.abc import Callable

from mark.studies.fang.loads import fang_loads
from mark.studies.fang.tables import fang_table2, fang_table4
from mark.studies.fig8 import mark_fig8
from mark.studies.fig9 import mark_fig9
from mark.studies.hetsev.fig5 import hetsev_fig5
from mark.studies.hetsev.fig6 import hetsev_fig6
from mark.studies.hetsev.fig7 import hetsev_fig7
from mark.studies.hetsev.rules import hetsev_rules
from mark.studies.kairos.fig8 import kairos_fig8
from mark.studies.kairos.fig9 import kairos_fig9
from mark.studies.kairos.fig10 import kairos_fig10
from mark.studies.kairos.fig11 import kairos_fig11
from mark.studies.kairos.fig12 import kairos_fig12
from mark.studies.kairos.fig13 import kairos_fig13, kairos_fig14
from mark.studies.kairos.fig16 import kairos_fig15, kairos_fig16
from mark.studies.ratio import mark_ratio
from mark.studies.study import Study, StudyContext
from mark.studies.superserve.appb import superserve_appb
from mark.studies.superserve.fig8 import superserve_fig8
from mark.studies.superserve.fig9 import superserve_fig9
from mark.studies.superserve.fig10 import superserve_fig10
from mark.studies.superserve.fig11 import superserve_fig11
from mark.studies.superserve.fig11b import superserve_fig11b
from mark.studies.superserve.loads import superserve_loads
from mark.studies.table5 import mark_table5

__all__ = ["STUDIES", "Study", "StudyContext"]

STUDIES: dict[str, Callable[[StudyContext], Study]] = {
    "mark-table5": mark_table5,
    "mark-fig8": mark_fig8,
    "mark-fig9": mark_fig9,
    "mark-ratio": mark_ratio,
    "kairos-fig8": kairos_fig8,
    "kairos-fig9": kairos_fig9,
    "kairos-fig10": kairos_fig10,
    "kairos-fig11": kairos_fig11,
    "kairos-fig12": kairos_fig12,
    "kairos-fig13": kairos_fig13,
    "kairos-fig14": kairos_fig14,
    "kairos-fig15": kairos_fig15,
    "kairos-fig16": kairos_fig16,
    "superserve-fig8": superserve_fig8,
    "superserve-fig9": superserve_fig9,
    "superserve-fig10": superserve_fig10,
    "superserve-fig11": superserve_fig11,
    "superserve-fig11b": superserve_fig11b,
    "superserve-appb": superserve_appb,
    "superserve-loads": superserve_loads,
    "fang-table2": fang_table2,
    "fang-table4": fang_table4,
    "fang-loads": fang_loads,
    "hetsev-fig5": hetsev_fig5,
    "hetsev-fig6": hetsev_fig6,
    "hetsev-fig7": hetsev_fig7,
    "hetsev-rules": hetsev_rules,
}
