"""The external scaler as KEDA calls it: metrics, activity, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from mark.domain.errors import Misconfigured
from mark.domain.plans.pod_plan import PodCount, PodPlan
from mark.serving.grpc.external_scaler import CLASSES, ScalerServer
from mark.serving.grpc.grpc_server import GrpcConfig
from tests.serving.grpc.keda import Keda, reference

OFFERINGS = ("c5.large:on-demand", "g4dn.xlarge:on-demand")
KEDAS = "2c7e6a0cd2666b715361c8b614389843953044767711b5984232b14a5bcc20ec"
"""Digest of the fields that the descriptor in KEDA's pkg/scalers/externalscaler/externalscaler.pb.go has."""


def plan(large: int, gpu: int) -> PodPlan:
    counts = zip(OFFERINGS, (large, gpu), strict=True)
    pods = tuple(PodCount(offering=name, count=count, reason=f"for {count}0 rps → ok") for name, count in counts)
    return PodPlan(at=60.0, demand_end_at=60.0, pods=pods)


def against(talk: Callable[[Keda, Callable[[PodPlan], None]], None], first: PodPlan | None) -> None:
    """Let blocking code talk to a scaler, and tell it another plan."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        server = ScalerServer(GrpcConfig(host="127.0.0.1", port=0), OFFERINGS)
        if first is not None:
            server.tell(first)
        await server.start()

        def work() -> None:
            with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                talk(Keda(channel), lambda told: loop.call_soon_threadsafe(server.tell, told) and None)

        try:
            await asyncio.to_thread(work)
        finally:
            await server.stop()

    asyncio.run(test())


def fields(message: Any) -> Iterator[str]:
    for field in message.fields:
        kind = field.message_type
        yield (
            f"{message.full_name} {field.number} {field.name} {field.type} {field.is_repeated} "
            f"{kind and kind.full_name}"
        )
        if kind is not None and kind.containing_type is not None:
            yield from fields(kind)


def test_messages_are_those_of_kedas_own_descriptor() -> None:
    found = sorted(line for one in CLASSES.values() for line in fields(one.DESCRIPTOR))
    assert hashlib.sha256("\n".join(found).encode()).hexdigest() == KEDAS, found


def test_each_trigger_has_the_metric_of_its_offering() -> None:
    def talk(keda: Keda, _: Any) -> None:
        large, gpu = reference(offering="c5.large"), reference(offering=OFFERINGS[1])
        assert keda.spec(large) == [("c5-large-on-demand", 1.0)]
        assert keda.metrics(large, "c5-large-on-demand") == ({"c5-large-on-demand": 3.0}, "for 30 rps ? ok")
        assert keda.metrics(gpu, "g4dn-xlarge-on-demand")[0] == {"g4dn-xlarge-on-demand": 0.0}
        assert (keda.is_active(large), keda.is_active(gpu)) == (True, False)

    against(talk, plan(3, 0))


def test_a_stream_says_when_activity_changes() -> None:
    def talk(keda: Keda, tell: Callable[[PodPlan], None]) -> None:
        stream = keda.active_stream(reference(offering="c5.large"))
        seen = [next(stream).result]
        for count in (2, 0, 1):
            tell(plan(count, 0))
            if count != 2:
                seen.append(next(stream).result)
        stream.cancel()
        assert seen == [True, False, True]

    against(talk, plan(3, 0))


@pytest.mark.parametrize(
    ("metadata", "metric", "code", "told"),
    [
        ({"offering": "c5.large"}, "rps", "NOT_FOUND", "no metric 'rps'; c5.large:on-demand has 'c5-large-"),
        ({"offering": "c5.lrge"}, "c5-large", "INVALID_ARGUMENT", "'c5.lrge'; did you mean 'c5.large'?"),
        ({}, "c5-large", "INVALID_ARGUMENT", "needs offering: one of c5.large, g4dn.xlarge"),
        ({"offering": "c5.large"}, "g4dn-xlarge-on-demand", "NOT_FOUND", "c5.large:on-demand has"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_a_status_that_says_so(metadata: dict[str, str], metric: str, code: str, told: str):
    def talk(keda: Keda, _: Any) -> None:
        with pytest.raises(grpc.RpcError) as error:
            keda.metrics(reference(**metadata), metric)
        assert (error.value.code().name, told in error.value.details()) == (code, True), error.value.details()

    against(talk, plan(1, 1))


def test_before_the_first_plan_there_is_no_answer() -> None:
    def talk(keda: Keda, tell: Callable[[PodPlan], None]) -> None:
        large = reference(offering="c5.large")
        assert keda.spec(large) == [("c5-large-on-demand", 1.0)]
        for ask in (
            keda.is_active,
            lambda of: keda.metrics(of, "c5-large-on-demand"),
            lambda of: next(keda.active_stream(of)),
        ):
            with pytest.raises(grpc.RpcError) as error:
                ask(large)
            assert (error.value.code().name, error.value.details()) == (
                "UNAVAILABLE",
                "no answer yet: the first plan is not made yet",
            )

    against(talk, None)


async def test_a_port_that_another_has_is_refused() -> None:
    first = ScalerServer(GrpcConfig(host="127.0.0.1", port=0), OFFERINGS)
    with pytest.raises(Misconfigured, match="choose another port"):
        ScalerServer(GrpcConfig(host="127.0.0.1", port=first.port), OFFERINGS)
    await first.stop()
