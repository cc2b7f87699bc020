"""The reference's whole bill."""

from dataclasses import replace

import numpy as np
import pytest

from mark.catalog.billing import Load, bill_overhead
from mark.domain.models.objective import Slo
from mark.domain.offerings.times import CloudTimes
from mark.planner.yardsticks import YardstickInput, reference_usd
from mark.simulator.reference_total import reference_total_usd
from tests.footprints import FOOTPRINT
from tests.planner.builders import offering, overflow

HOURS = 2
ADDRESS_USD, DISK_USD = 0.005, 0.08 / 730
PUBLIC = replace(FOOTPRINT, public_instances=True, disk_gib=10.0)
STEADY = YardstickInput(
    arrivals=np.full(HOURS * 3600, 2.0),
    offerings=(offering("unit", rps=1.0, usd_per_hour=0.01, launch_usd=0.0),),
    overflow=overflow(),
    slo=Slo(latency_s=0.6, target=0.98),
    times=CloudTimes(),
)


def test_an_instance_drags_its_address_and_disk_along() -> None:
    load = Load(duration_s=HOURS * 3600, peak_rps=2.0, requests=2 * HOURS * 3600, payload_mib=0.1, crossed=0)
    around = sum(line.usd for line in bill_overhead(PUBLIC, load))
    dragged = 2 * HOURS * (ADDRESS_USD + 10 * DISK_USD)
    found = reference_total_usd(STEADY, PUBLIC, 0.1)
    assert found == pytest.approx(reference_usd(STEADY) + dragged + around)
    assert found - reference_total_usd(STEADY, replace(PUBLIC, public_instances=False), 0.1) == pytest.approx(
        2 * HOURS * ADDRESS_USD
    )


def test_what_an_instance_drags_along_may_send_its_load_to_lambda() -> None:
    rented = reference_usd(replace(STEADY, overflow=None))
    price = replace(overflow(), usd_per_request=1.1 * rented / STEADY.arrivals.sum(), usd_per_gib_s=0.0)
    given = replace(STEADY, overflow=price)
    assert reference_usd(given) == pytest.approx(rented)
    load = Load(duration_s=HOURS * 3600, peak_rps=2.0, requests=2 * HOURS * 3600, payload_mib=0.1, crossed=0)
    calls_usd = reference_total_usd(given, PUBLIC, 0.1) - sum(line.usd for line in bill_overhead(PUBLIC, load))
    assert 1.1 * rented < calls_usd < 1.2 * rented
