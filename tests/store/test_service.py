"""The controller's side: spec, tallies, windows, ledger, status."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from mark.dispatch.policy import DispatchPolicy
from mark.domain.billing.costs import LedgerRecord, Transition
from mark.domain.clock import ClockAnchor
from mark.domain.errors import Misconfigured
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.lease import LeaseLost
from mark.domain.load.traffic import FailureKind, GatewayReport, ModelTraffic, Warmed
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.models.versions import ModelVersions, RolloutCommand, RolloutVerb, VersionCounts
from mark.service_spec import AgentSpec, BackendSpec, ServedModel, ServiceSpec
from mark.store import ledger, traffic
from mark.store.codec import AGENT_SPEC, TRANSITION
from mark.store.connect import Link, connect_async
from mark.store.data_plane import AgentStore, GatewayStore
from mark.store.embedded import EmbeddedRedis
from mark.store.keys import MODEL_DOCUMENTS, Keys
from mark.store.published_status import ROLLOUT_COMMAND
from mark.store.service import RETIRED_S, ServiceStore
from tests.planner.builders import offering, overflow
from tests.store.builders import a_member, a_report, a_transition
from tests.store.worlds import goes_by

SLO = Slo(latency_s=0.6, target=0.98)
SPEC = ServiceSpec(
    name="demo",
    models=(
        ServedModel(
            model=ModelSpec(name="digits", slo=SLO),
            slo=SLO,
            dispatch=DispatchPolicy(),
            offerings=(offering("c5.large", usd_per_hour=0.085, rps=20.0),),
            backend=BackendSpec(kind="emulated"),
            overflow=overflow(),
        ),
    ),
)


def reported(redis: EmbeddedRedis, service: str, *reports: GatewayReport) -> None:
    async def told() -> None:
        link = connect_async(redis.url)
        for report in reports:
            await GatewayStore(link, service).report(report)
        await link.aclose()

    asyncio.run(told())


def test_a_service_is_read_as_it_was_written(store: ServiceStore, redis: EmbeddedRedis, service: str) -> None:
    store.put_spec(SPEC)

    async def read() -> tuple[ServiceSpec, AgentSpec]:
        link = connect_async(redis.url)
        whole = await GatewayStore(link, service).spec()
        part = await AgentStore(link, service).spec(SPEC.models[0].name)
        with pytest.raises(Misconfigured, match="no model 'other'"):
            await AgentStore(link, service).spec("other")
        await link.aclose()
        return whole, part

    assert store.spec() == SPEC
    assert asyncio.run(read()) == (SPEC, AgentSpec(served=SPEC.models[0], seed=SPEC.seed))


def test_an_unknown_service_is_named(store: ServiceStore, service: str) -> None:
    with pytest.raises(Misconfigured, match=f"'{service}'.*start it"):
        store.spec()


def test_what_another_version_wrote_is_refused_in_one_line(store: ServiceStore, link: Link, service: str) -> None:
    link.call("SET", f"{{mark:{service}}}:spec", '{"name":"demo"}')
    with pytest.raises(
        Misconfigured, match=r"ServiceSpec that this program cannot read \(models: Field required\)"
    ):
        store.spec()


@pytest.mark.parametrize("name", ["", "a{b", "a}b"])
def test_a_name_that_would_break_the_hash_tag_is_refused(link: Link, name: str) -> None:
    with pytest.raises(Misconfigured, match="cannot name a service"):
        ServiceStore(link, name)


def test_tallies_add_up_over_gateways_and_reports(store: ServiceStore, redis: EmbeddedRedis, service: str) -> None:
    first = {
        "instance": 3,
        "lambda_": 2,
        "late": 1,
        "gib_s": 0.1,
        "latency_sum_s": 0.3,
        "cold": 1,
        "invocations": 2,
    }
    second = {"instance": 1, "standby": 4, "shed": 5, "failed": 6, "rejected": 8, "redispatched": 7, "gib_s": 0.2}
    reported(
        redis,
        service,
        a_report(
            "g-1",
            0,
            arrivals=((7, 9),),
            latency_counts=((3, 2), (12, 1)),
            first_byte_counts=((1, 2),),
            first_byte_sum_s=0.25,
            lambda_warm=9,
            **first,
        ),
        a_report(
            "g-1",
            1,
            arrivals=((8, 11),),
            latency_counts=((3, 1),),
            first_byte_counts=((1, 1), (4, 1)),
            lambda_warm=2,
            lambda_in_flight=1,
            **second,
        ),
        a_report("g-2", 0, lambda_warm=5, lambda_in_flight=2, **second),
    )

    totals = store.traffic("digits")

    assert totals == ModelTraffic(
        model="digits",
        instance=5,
        standby=8,
        lambda_=2,
        late=1,
        shed=10,
        failed=12,
        rejected=16,
        redispatched=14,
        latency_counts=((3, 3), (12, 1)),
        latency_sum_s=pytest.approx(0.3),
        first_byte_counts=((1, 3), (4, 1)),
        first_byte_sum_s=pytest.approx(0.25),
        invocations=2,
        cold=1,
        gib_s=pytest.approx(0.5),
        lambda_in_flight=3,
        lambda_warm=7,
        gateways=2,
    )
    assert store.arrived("digits") == 20
    assert store.traffic("words") == ModelTraffic(model="words")


def test_failures_of_a_kind_are_counted_together_and_the_latest_kinds_kept(
    store: ServiceStore, redis: EmbeddedRedis, service: str
) -> None:
    def failed(text: str, count: int, since: float, at: float) -> FailureKind:
        return FailureKind(text=text, count=count, since=since, at=at)

    last = failed("d", 1, 35.0, 35.0)
    reported(
        redis,
        service,
        a_report("g-1", 0, failures=(failed("row 3", 2, 10.0, 15.0), failed("b", 1, 10.0, 10.0))),
        a_report("g-2", 0, failures=(failed("row 4", 5, 15.0, 20.0),)),
        a_report("g-1", 1, failures=(failed("c", 1, 30.0, 30.0),)),
        a_report("g-2", 1, failures=(last,)),
    )

    assert store.traffic("digits").failures == (
        last,
        failed("c", 1, 30.0, 30.0),
        failed("row 4", 7, 10.0, 20.0),
    )


def test_a_report_on_several_models_counts_for_each(
    store: ServiceStore, redis: EmbeddedRedis, service: str
) -> None:
    models = tuple(
        ModelTraffic(model=name, arrivals=((3, count),), instance=count) for name, count in (("a", 1), ("b", 2))
    )
    reported(redis, service, GatewayReport(gateway="g", sequence=4, models=models))

    assert [store.arrivals(name, 3, 3) for name in "ab"] == [[1], [2]]
    assert [store.traffic(name).instance for name in "ab"] == [1, 2]


async def test_gauges_of_a_silent_gateway_count_no_more(
    store: ServiceStore, redis: EmbeddedRedis, service: str, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mark.store.service.GATEWAY_TTL_S", 0.1)

    ours = connect_async(redis.url)
    gateway = GatewayStore(ours, service)
    await gateway.report(a_report("g-1", 0, instance=1, lambda_warm=5))
    goes_by(link, 0.15)
    await gateway.report(a_report("g-2", 0, instance=1, lambda_warm=2))
    await ours.aclose()

    assert store.traffic("digits") == ModelTraffic(model="digits", instance=2, lambda_warm=2, gateways=1)


def test_windows_are_kept_for_an_hour_and_no_longer(
    store: ServiceStore, redis: EmbeddedRedis, service: str, link: Link
) -> None:
    windows = range(1000, 1000 + 3 * traffic.KEEP_WINDOWS)
    reports = (a_report("g", number, arrivals=((window, 1),)) for number, window in enumerate(windows))
    reported(redis, service, *reports)

    kept = traffic.KEEP_WINDOWS
    assert store.arrivals("digits", windows[-1] - kept + 1, windows[-1]) == [1] * kept
    assert link.call("HLEN", f"{{mark:{service}}}:arrivals:digits") <= 2 * kept
    assert store.arrivals("digits", 1000, 1000) == [0]
    assert store.arrived("digits") == len(windows)


def test_a_transition_told_again_is_noted_once(store: ServiceStore) -> None:
    pending, running = a_transition(state="pending", at=5.25), a_transition(state="running", at=9.0)
    other = a_transition("i-2", state="pending", at=1.0)
    for transition in (running, pending, running, replace(pending, offering="another"), other):
        store.note(transition)

    assert store.transitions("digits") == (other, pending, running)
    assert store.transitions("words") == ()


def test_transitions_of_one_instant_stay_in_the_order_they_were_told(store: ServiceStore) -> None:
    told = tuple(a_transition(state=state, at=3.0) for state in ("pending", "running", "stopping", "stopped"))
    for transition in told:
        store.note(transition)

    assert store.transitions("digits") == told


def test_a_transition_is_fetched_and_decoded_once(
    store: ServiceStore, link: Link, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, late = (a_transition(name, at=at) for name, at in (("i-1", 3.0), ("i-2", 4.0), ("i-3", 1.0)))
    decoded: list[bytes] = []
    real = TRANSITION.decode
    monkeypatch.setattr(TRANSITION, "decode", lambda line: (decoded.append(line), real(line))[1])
    store.note(first)
    store.note(second)
    known = store.transitions("digits")
    assert store.transitions("digits") is known
    store.note(late)

    assert store.transitions("digits") == (late, first, second)
    assert len(decoded) == 3
    link.call("RPOP", f"{{mark:{service}}}:ledger:digits")  # a replica took over that had not heard of it
    assert store.transitions("digits") == (first, second)
    link.call("DEL", f"{{mark:{service}}}:ledger:digits")
    assert store.transitions("digits") == ()


def a_life(instance: str, start: float) -> list[Transition]:
    states = ("pending", "running", "shutting-down", "terminated")
    return [a_transition(instance, state=state, at=start + 10.0 * place) for place, state in enumerate(states)]


def test_a_compacted_ledger_has_what_is_young_and_sums_of_the_rest(
    store: ServiceStore, link: Link, service: str
) -> None:
    """Other processes, which read it before, see the same."""
    other = ServiceStore(link, service)
    for number in range(30):
        for transition in a_life(f"i-{number}", 60.0 * number):
            store.note(transition)
    young = a_life("i-young", 7300.0)
    store.note(young[0])
    assert len(other.transitions("digits")) == 121
    assert store.compact_ledger("digits", 7200.0, least=121) == 0
    assert store.compact_ledger("digits", 7200.0, least=120) == 120

    for seen in (store, other, ServiceStore(link, service)):
        record = seen.ledger("digits")
        assert record.transitions == (young[0],)
        assert [(line.offering, line.billed_s) for item in record.rollups for line in item.billed] == [
            ("c5.large/spot", 30 * 60)
        ]
        assert record.folded_to == 7200.0
        assert seen.ledger("digits") is record
    assert link.call("SCARD", f"{{mark:{service}}}:noted:digits") == 1
    store.note(young[0])
    store.note(young[1])
    assert other.transitions("digits") == (*young[:2],)


def test_what_is_told_again_of_what_was_folded_is_not_billed_again(store: ServiceStore) -> None:
    told = a_life("i-1", 60.0)
    for transition in told:
        store.note(transition)
    assert store.compact_ledger("digits", 3600.0, least=1) == 4
    before = store.ledger("digits")
    for transition in (*told, a_transition("i-2", at=3599.0)):
        store.note(transition)
    assert store.ledger("digits") == before
    store.note(a_transition("i-2", at=3600.0))
    assert len(store.transitions("digits")) == 1


def test_a_ledger_that_somebody_wrote_to_meanwhile_is_compacted_another_time(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for transition in a_life("i-1", 60.0):
        store.note(transition)
    real = ledger.compacted

    def meanwhile(record: LedgerRecord, end: float) -> LedgerRecord:
        store.note(a_transition("i-2", at=5000.0))
        return real(record, end)

    monkeypatch.setattr(ledger, "compacted", meanwhile)
    assert store.compact_ledger("digits", 3600.0, least=1) == 0
    assert len(store.transitions("digits")) == 5
    monkeypatch.undo()
    assert store.compact_ledger("digits", 3600.0, least=1) == 4


def test_a_store_that_forgot_a_compacted_ledger_is_believed(store: ServiceStore, link: Link, service: str) -> None:
    for transition in a_life("i-1", 60.0):
        store.note(transition)
    store.compact_ledger("digits", 3600.0, least=1)
    assert store.ledger("digits").rollups
    for part in ("ledger", "noted", "rollup"):
        link.call("DEL", f"{{mark:{service}}}:{part}:digits")
    assert store.ledger("digits") == LedgerRecord(transitions=())


def test_versions_of_a_model_that_is_removed_expire_with_it(store: ServiceStore, link: Link, service: str) -> None:
    [model] = SPEC.models
    gone = replace(model, model=replace(model.model, name="words"), version="aaaa")
    store.put_spec(replace(SPEC, models=(model, gone)))
    store.put_version(replace(gone, version="bbbb"), SPEC)
    store.put_spec(SPEC)
    assert store.retire_models() == ("words",)
    for version in ("aaaa", "bbbb"):
        assert link.call("TTL", Keys(service).of_version("words", version)) > 0


def test_what_is_kept_of_shared_instances_expires_once_nothing_is_shared(
    store: ServiceStore, link: Link, service: str
) -> None:
    store.put_spec(replace(SPEC, shares=True))
    assert not store.retire_models()
    store.put_status(f"model:{SHARED}", {"at": 0.0})
    store.put_spec(SPEC)
    assert store.retire_models() == (SHARED,)
    kept = Keys(service).of("status", f"model:{SHARED}")
    assert link.call("TTL", kept) > 0
    store.put_spec(replace(SPEC, shares=True))
    assert link.call("TTL", kept) == -1


def test_versions_of_long_ago_are_forgotten_but_none_that_is_in_use(
    store: ServiceStore, link: Link, service: str
) -> None:
    [model] = SPEC.models
    store.put_spec(SPEC)
    names = [f"{number:012x}" for number in range(10)]
    for version in (*names, names[1]):  # the last one was rolled out a second time
        store.put_version(replace(model, version=version), SPEC)
        store.put_warmed(Warmed(model=model.name, at=1.0, share=1, version=version))
        counts = (VersionCounts(version=version, answered=3, late=1),)
        traffic = (ModelTraffic(model=model.name, versions=counts),)
        store.report(GatewayReport(gateway=version, sequence=1, models=traffic))
    store.begin_versions([replace(model, version=names[0])])
    assert store.forget_versions(model.name) == (*names[2:6],), "the stable one is kept, however old"
    assert store.forget_versions(model.name) == ()
    kept = {names[0], names[1], *names[6:]}
    assert {one.version for one in store.traffic(model.name).versions} == kept
    assert link.call("HLEN", Keys(service).of("warmed")) == len(kept)
    for version in names:
        assert bool(link.call("EXISTS", Keys(service).of_version(model.name, version))) is (version in kept)


def test_a_start_makes_its_version_the_stable_one_and_forgets_commands(store: ServiceStore) -> None:
    [model] = SPEC.models
    ROLLOUT_COMMAND.write(store, RolloutCommand(id="1", verb=RolloutVerb.ABORT), model.name)
    store.begin_versions([replace(model, version="aaaa")])
    assert store.versions(model.name) == ModelVersions(model=model.name, stable="aaaa")
    assert ROLLOUT_COMMAND.read(store, model.name) is None
    store.begin_versions([model])
    assert store.versions(model.name) is None


def test_a_service_that_goes_on_keeps_its_versions_and_tells_them_what_it_is_now(
    store: ServiceStore, link: Link, service: str
) -> None:
    [model] = SPEC.models
    own = BackendSpec(kind="python", target="m:M", folder="/versions/bbbb")
    store.continue_versions([replace(model, version="aaaa")], SPEC)
    assert store.versions(model.name) == ModelVersions(model=model.name, stable="aaaa")
    lease = store.leases.acquire("one", 60.0)
    assert lease is not None
    store.put_version(replace(model, version="bbbb", backend=own), SPEC)
    store.put_versions(ModelVersions(model=model.name, stable="bbbb"), lease)

    again = replace(model, version="cccc", slo=replace(model.slo, latency_s=9.0))
    store.continue_versions([again], SPEC)
    assert store.versions(model.name) == ModelVersions(model=model.name, stable="bbbb")
    told = AGENT_SPEC.decode(link.call("GET", Keys(service).of_version(model.name, "bbbb")))
    assert told.served == replace(again, version="bbbb", backend=own)


def test_versions_are_written_by_the_lease_s_holder_alone(store: ServiceStore) -> None:
    [model] = SPEC.models
    versions = ModelVersions(model=model.name, stable="bbbb")
    lease = store.leases.acquire("one", 60.0)
    assert lease is not None
    store.put_versions(versions, lease)
    store.leases.release(lease)
    with pytest.raises(LeaseLost):
        store.put_versions(replace(versions, stable="cccc"), lease)
    assert store.versions(model.name) == versions


def test_what_is_known_of_a_removed_model_expires_and_stays_where_it_is_back(
    store: ServiceStore, link: Link, service: str
) -> None:
    def spec(*names: str) -> ServiceSpec:
        [model] = SPEC.models
        return replace(SPEC, models=tuple(replace(model, model=replace(model.model, name=name)) for name in names))

    def lives(model: str) -> dict[str, int]:
        keys = sorted(link.call("KEYS", f"*{service}}}*:{model}*"))
        return {key.decode(): link.call("TTL", key) for key in keys}

    store.put_spec(spec("digits", "words"))
    lease = store.leases.acquire("controller", 60.0)
    assert lease is not None
    for model in ("digits", "words"):
        seen = ModelTraffic(model=model, arrivals=((1, 2),), instance=2, latency_counts=((3, 2),))
        store.report(GatewayReport(gateway=f"gateway-{model}", sequence=1, models=(seen,)))
        store.note(replace(a_transition(), model=model))
        store.open_journal(model, b"header", lease).rotate(b"header")
        for document in MODEL_DOCUMENTS:
            store.put_status(f"{document}:{model}", {})
    assert store.retire_models() == ()
    assert set(lives("words").values()) == {-1}
    assert len(lives("words")) == 18

    store.put_spec(spec("digits"))
    assert store.retire_models() == ("words",)
    assert store.retire_models() == ()
    assert all(0 < left <= RETIRED_S for left in lives("words").values())
    assert set(lives("digits").values()) == {-1}
    store.put_spec(spec("digits", "words"))
    assert set(lives("words").values()) == {-1}

    store.put_spec(spec("digits"))
    assert store.retire_models() == ("words",)
    link.call("DEL", *lives("words"))
    store.retire_models()
    assert link.call("SMEMBERS", f"{{mark:{service}}}:models") in ({b"digits"}, [b"digits"])


def test_a_status_document_may_be_kept_for_a_while(store: ServiceStore, link: Link, service: str) -> None:
    store.put_status("background-failures:one", {"failing": {}}, keep_s=60.0)
    assert 0 < link.call("TTL", f"{{mark:{service}}}:status:background-failures:one") <= 60
    store.put_status("background-failures:one", {"failing": {}})
    assert link.call("TTL", f"{{mark:{service}}}:status:background-failures:one") == -1


def test_a_drain_can_be_taken_back(store: ServiceStore, redis: EmbeddedRedis, service: str) -> None:
    membership = store.membership("digits")
    membership.drain(["i-1", "i-2"])
    membership.undrain(["i-1"])
    membership.undrain([])

    async def asked() -> list[bool]:
        link = connect_async(redis.url)
        agent = AgentStore(link, service)
        answers = [await agent.announce(a_member(instance)) for instance in ("i-1", "i-2")]
        await link.aclose()
        return answers

    assert asyncio.run(asked()) == [False, True]


def test_a_service_that_starts_forgets_who_served_in_its_last_life(
    store: ServiceStore, redis: EmbeddedRedis, service: str
) -> None:
    async def announce(*names: str) -> None:
        link = connect_async(redis.url)
        agent = AgentStore(link, service)
        for name in names:
            await agent.announce(a_member(name))
        await link.aclose()

    asyncio.run(announce("i-1", "i-2"))
    store.forget_members()
    assert store.members() == ()
    asyncio.run(announce("i-3"))
    assert [member.instance for member in store.members()] == ["i-3"]


def test_services_on_one_server_do_not_meet(link: Link, store: ServiceStore) -> None:
    other = ServiceStore(link, "another")
    store.put_status("x", {"a": 1})
    store.note(a_transition())
    assert other.status("x") is None
    assert other.transitions("digits") == ()


def test_the_clocks_anchors_are_kept(store: ServiceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mark.store.service.KEEP_CLOCKS", 2)
    assert store.clocks() == ()
    anchors = [ClockAnchor(wall_at=1e9 + place, service_at=5.0 + place, speed=20.0) for place in range(3)]
    for anchor in anchors:
        store.put_clock(anchor)
    assert store.clocks() == tuple(anchors[1:])
    assert store.clock() == anchors[2]
