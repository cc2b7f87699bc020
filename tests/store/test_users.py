"""Each user of the store lives its whole life there, and can do nothing beyond it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mark.store.scripts as all_scripts
from mark.domain.clients import Client
from mark.domain.clock import ClockAnchor
from mark.domain.errors import RetryLater
from mark.domain.fleet.host_spec import SHARED, HostSpec, TenantSpec
from mark.domain.fleet.listing import ListedInstance
from mark.domain.fleet.member import Peer
from mark.domain.load.traffic import GatewayReport, ModelTraffic, Warmed
from mark.lambda_handlers.once import LinkClient
from mark.service_spec import AgentSpec
from mark.store.connect import Link, connect, connect_async
from mark.store.data_plane import AgentStore, GatewayStore
from mark.store.embedded import EmbeddedRedis
from mark.store.keys import MODEL_DOCUMENTS, Keys
from mark.store.published_status import BUDGET, BudgetStatus
from mark.store.replication import NodeStore
from mark.store.scripts import Script
from mark.store.service import ServiceStore
from mark.store.traffic import report_keys, traffic_keys
from mark.store.users import ACCESSES, PROCESSES, StoreUser, acl_file, make_passwords, rules_of, url_of
from tests.store.builders import a_member, a_transition
from tests.store.test_service import SPEC
from tests.waiting import until

SERVICE = "shop"
KEYS = Keys(SERVICE)
MODEL = SPEC.models[0].name
SCRIPTS = {name: value for name, value in vars(all_scripts).items() if isinstance(value, Script)}
SOURCES = [*Path("mark/store").glob("*.py"), Path("lambda_handlers/once.py")]
PASSWORDS = {**make_passwords(), StoreUser.NODE: "node", StoreUser.REPLICA: "replica"}
TRAFFIC_SEEN = ModelTraffic(model=MODEL, instance=3, arrivals=((100, 3),), latency_counts=((1, 3),))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    folder = tmp_path_factory.mktemp("users")
    quickly_busy = {"lua-time-limit": "50"}
    with EmbeddedRedis(folder, users=acl_file(SERVICE, PASSWORDS), options=quickly_busy) as server:
        assert (folder / "users.acl").stat().st_mode & 0o77 == 0
        yield server


def url(server: EmbeddedRedis, user: StoreUser) -> str:
    return url_of(server.url, user, PASSWORDS[user])


@pytest.fixture(scope="module")
def store(server: EmbeddedRedis) -> Iterator[ServiceStore]:
    """The controller's, in the middle of its life."""
    link = connect(url(server, StoreUser.CONTROLLER))
    store = ServiceStore(link, SERVICE)
    store.keep_scripts()
    store.put_spec(replace(SPEC, name=SERVICE))
    store.put_clock(ClockAnchor(wall_at=1.0))
    store.clients.change(lambda known: known.created(Client(name="shop", keys=()), models=[MODEL]))
    store.put_status("paused", {"on": False})
    BUDGET.write(store, BudgetStatus())
    yield store
    link.close()


@pytest.fixture
def agent(server: EmbeddedRedis, store: ServiceStore) -> Iterator[Link]:
    """A hostile model's link: the agent's password, and whatever words it likes."""
    assert store.service == SERVICE
    link = connect(url(server, StoreUser.AGENT))
    yield link
    link.close()


# Their whole lives.


def test_the_store_of_an_older_release_is_told_what_ours_may_do_and_takes_nothing_from_its_own(
    tmp_path: Path,
) -> None:
    old = acl_file(SERVICE, PASSWORDS).replace("+hgetall ", "").replace(f"~{KEYS.of('fleet')} ", "")
    with EmbeddedRedis(tmp_path, users=old) as server:
        gateway = connect(url(server, StoreUser.GATEWAY))
        with pytest.raises(RetryLater, match="permission"):
            gateway.call("HGETALL", KEYS.of("fleet"))
        node = connect(url(server, StoreUser.NODE))
        node.call("ACL", "SETUSER", StoreUser.AGENT, "~what-an-older-one-reads")
        NodeStore(node, 0).grant(SERVICE)
        assert gateway.call("HGETALL", KEYS.of("fleet")) == {}
        told = str(node.call("ACL", "GETUSER", StoreUser.AGENT))
        assert "what-an-older-one-reads" in told
        node.close()
        gateway.close()


def test_a_controllers_life_needs_nothing_that_its_user_may_not(store: ServiceStore) -> None:
    store.ping()
    lease = store.leases.acquire("me", 60.0)
    assert lease is not None
    journal = store.open_journal(MODEL, b"header", lease)
    journal.write(b"line")
    for _ in range(6):
        journal.rotate(b"header", unkept=True)
    assert [*store.journal_lines(MODEL)] == [b"header"]
    assert journal.size_bytes == len(b"header")
    store.leases.renew(lease)
    store.note(a_transition(at=1.0))
    store.note(a_transition(state="terminated", at=9.0))
    store.compact_ledger(MODEL, 50.0, least=1)
    store.membership(MODEL).drain(["i-7"])
    store.membership(MODEL).undrain(["i-7"])
    store.put_warmed(Warmed(model=MODEL, at=1.0, share=1))
    store.report(GatewayReport(gateway="pings", sequence=1, models=(TRAFFIC_SEEN,)))
    store.put_status("note", {}, keep_s=60)
    store.forget_members()
    store.share_wall(5.0)
    store.forget_wall()
    store.put_spec(replace(SPEC, name=SERVICE, models=()))
    assert store.retire_models() == (MODEL,)
    store.put_spec(replace(SPEC, name=SERVICE))
    assert (store.gateways(), store.warmed(MODEL), store.clocks()[-1:]) == ((), None, (ClockAnchor(wall_at=1.0),))
    assert store.arrivals(MODEL, 100, 100) == [3]
    store.leases.release(lease)
    assert store.leases.held_by() is None


async def test_a_gateways_life_needs_nothing_that_its_user_may_not(
    server: EmbeddedRedis, store: ServiceStore
) -> None:
    link = connect_async(url(server, StoreUser.GATEWAY))
    gateway, peer = GatewayStore(link, SERVICE), Peer(name="g-1", host="10.0.0.1", port=8080)
    assert (await gateway.spec()).name == SERVICE
    await gateway.share_wall(5.0)
    await gateway.share_wall(5.0)
    await gateway.members_version()
    await gateway.members()
    await gateway.clock()
    await gateway.warmed()
    await gateway.spending_limit()
    assert (await gateway.clients()).version == 1
    await gateway.report(GatewayReport(gateway="g-1", sequence=1, models=(TRAFFIC_SEEN,)))
    assert await gateway.announce_gateway(peer) == (peer,)
    assert store.gateways() == (peer,)
    await gateway.leave_gateways("g-1")
    await link.aclose()


async def test_an_agents_life_needs_nothing_that_its_user_may_not(
    server: EmbeddedRedis, store: ServiceStore
) -> None:
    link = connect_async(url(server, StoreUser.AGENT))
    agent = AgentStore(link, SERVICE)
    assert await agent.spec(MODEL) == AgentSpec(served=SPEC.models[0], seed=SPEC.seed)
    assert await agent.clock() == ClockAnchor(wall_at=1.0)
    assert await agent.acted_at() is None
    await agent.share_wall(5.0)
    await agent.share_wall(5.0)
    assert not await agent.announce(a_member("i-1"))
    store.membership(MODEL).drain(["i-1"])
    assert await agent.announce(a_member("i-1"))
    await agent.leave("i-1")
    await link.aclose()


def test_a_report_reads_the_service_and_remembers_what_it_mailed(
    server: EmbeddedRedis, store: ServiceStore
) -> None:
    store.note(a_transition(at=100.0))
    link = connect(url(server, StoreUser.REPORT))
    reading = ServiceStore(link, SERVICE)
    assert reading.spec().name == SERVICE
    assert reading.ledger(MODEL).transitions
    assert reading.traffic(MODEL).model == MODEL
    assert list(reading.journal_segments(MODEL)) == list(store.journal_segments(MODEL))
    client = LinkClient(link, SERVICE)
    assert client.set("day", "begun now", ex=60, nx=True)
    assert client.set("day", "begun later", ex=60, nx=True) is None
    assert client.set("other", "done", ex=0)
    assert client.set("day", "done", ex=60)
    assert (client.get("day"), client.get("other")) == (b"done", None), "what is over is forgotten"
    client.delete("day")
    assert client.get("day") is None
    for words in (
        ("SET", "spec", "{}"),
        ("DEL", f"journal:{MODEL}:1"),
        ("DEL", f"ledger:{MODEL}"),
        ("EVAL", "", 0),
    ):
        with pytest.raises(RetryLater, match="no permissions"):
            link.call(words[0], KEYS.of(str(words[1])), *words[2:])
    link.close()


def test_an_agent_waits_for_a_controller_where_the_store_does_not_know_our_scripts(agent: Link) -> None:
    with pytest.raises(RetryLater, match="does not know our scripts yet; a controller tells it"):
        agent.run(Script("return 'never loaded'"), ())


@pytest.mark.slow
def test_a_script_that_never_ends_is_ended_by_a_controller(server: EmbeddedRedis, store: ServiceStore) -> None:
    """A gateway may send one."""
    link = connect(url(server, StoreUser.GATEWAY))
    with pytest.raises(RetryLater):
        link.call("EVAL", "while true do end", 0)

    def answers() -> bool:
        with suppress(RetryLater):
            store.ping()
            return True
        return False

    until(answers)
    link.close()


# What an agent's user cannot do.

SENT = {
    "get": (), "setnx": ("x",), "incr": (), "hset": ("i-1", "x"), "hdel": ("i-1",), "zadd": ("9e15", "i-1"),
    "zrem": ("i-1",), "zrangebyscore": ("-inf", "+inf"), "zscore": ("i-1",), "sismember": ("i-1",),
}  # fmt: skip
"""What follows the key, for each command that an agent may give."""
OWN = {"members", "seen", "version", "heard-at", "digests", "wall-offsets", "walls-seen"}
"""Keys that agents change. Who lies there is not listed, so that no gateway asks it."""
READ = {"drains", "clock", "acted-at", "host:i-1", f"served:{MODEL}"}
OTHERS = {
    "spec", "status:resources", "status:paused", "status:budget", f"ledger:{MODEL}", "lease", "epoch", "fleet",
    "held", f"journal:{MODEL}", f"journal:{MODEL}:1", f"status:model:{MODEL}", "clocks", "models", "warmed",
    "peers", "once", "gateways", "clients", "traffic:other", "arrivals:other", "latency:other", "gauges:other",
    "drains-at", "versions", "peers-seen", "sequences", "retired", f"kept-versions:{MODEL}", f"rollup:{MODEL}",
    f"noted:{MODEL}", f"status:rollout-command:{MODEL}",
}  # fmt: skip


def content(store: ServiceStore, link: Link, part: str) -> object:
    """A key that agents may read, as a controller sees it."""
    assert store.service == SERVICE
    return link.call("SMEMBERS" if part == "drains" else "GET", KEYS.of(part))


@pytest.mark.parametrize("verb", SENT)
def test_what_an_agent_may_do_to_each_key_by_each_command(
    agent: Link, server: EmbeddedRedis, store: ServiceStore, verb: str
) -> None:
    """It reaches no key of the others, and changes none of those that it is to read."""
    assert {*SENT} | {"evalsha", "time"} == {*ACCESSES[StoreUser.AGENT].commands}
    store.membership(MODEL).drain(["i-1"])
    store.put_host("i-1", HostSpec())
    store.put_acted_at(1.0)
    controller = connect(url(server, StoreUser.CONTROLLER))
    for part in OTHERS:
        with pytest.raises(RetryLater, match=r"no permissions|NOPERM"):
            agent.call(verb, KEYS.of(part), *SENT[verb])
    for part in READ:
        before = content(store, controller, part)
        with suppress(RetryLater):  # of another type
            agent.call(verb, KEYS.of(part), *SENT[verb])
        assert content(store, controller, part) == before, (verb, part)
        assert before
    assert {kind for kind in ACCESSES[StoreUser.AGENT].keys if "*" not in kind} == OWN | {
        "drains",
        "clock",
        "acted-at",
    }
    store.membership(MODEL).undrain(["i-1"])
    controller.close()


async def test_gateways_ask_no_agent_that_no_controller_lists(server: EmbeddedRedis, store: ServiceStore) -> None:
    """An agent's user may write whatever member it likes; that of an instance that was never launched, say."""
    told = replace(a_member("i-1", model=MODEL), version="v1")
    thief = replace(told, host="127.77.0.9", port=6666)
    tenant = replace(told, instance="i-2", host="127.77.0.2", share_rps=0.0)
    lies = (
        *(replace(told, instance=name) for name in ("i-9", "i-2")),
        *(thief, replace(told, model="other"), replace(told, version="v2")),
        *(replace(tenant, model="other"), replace(tenant, host=thief.host), replace(tenant, instance="i-1")),
    )

    links = [connect_async(url(server, user)) for user in (StoreUser.GATEWAY, StoreUser.AGENT)]
    gateway, agent = GatewayStore(links[0], SERVICE), AgentStore(links[1], SERVICE)
    await agent.announce(told)
    await agent.announce(tenant)
    assert await gateway.members() == (told,), "no controller has listed any; shared ones there are none"
    for model in (MODEL, "other"):
        listed = {"i-1": ListedInstance(host=told.host, version="v1")} if model == MODEL else {}
        store.membership(model).list_instances(listed)
    store.membership(SHARED).list_instances({"i-2": ListedInstance(host=tenant.host)})
    held = TenantSpec(model=MODEL, offering="c5.large", max_batch=1, share_rps=0.0)
    store.put_host("i-2", HostSpec(tenants=(held,)))
    await agent.announce(tenant)
    assert await gateway.members() == (told, tenant)
    for lie in lies:
        await agent.announce(lie)
        assert {*await gateway.members()} <= {told, tenant}, lie
    await agent.announce(told)
    await agent.announce(tenant)
    before = await gateway.members_version()
    assert await gateway.members() == (told, tenant)
    store.membership(MODEL).list_instances({})
    assert await gateway.members_version() > before
    assert await gateway.members() == (tenant,)
    controller = connect(url(server, StoreUser.CONTROLLER))
    controller.call("DEL", *KEYS.listing)
    await agent.announce(thief)
    assert await gateway.members() == (tenant,), "the store has lost it, and gateways remember"
    store.forget_members()
    controller.close()
    for link in links:
        await link.aclose()


@pytest.mark.parametrize("words", [("HGET", "i-2"), ("HMGET", "i-2"), ("HVALS",), ("HGETALL",)], ids=" ".join)
def test_an_agent_reads_no_key_of_another_agents_wire(agent: Link, words: tuple[str, ...]) -> None:
    with pytest.raises(RetryLater, match=r"no permissions|NOPERM"):
        agent.call(words[0], KEYS.of("members"), *words[1:])


async def test_what_an_agent_announces_and_nobody_can_read_stops_nobody(
    agent: Link, server: EmbeddedRedis, store: ServiceStore
) -> None:
    link = connect_async(url(server, StoreUser.AGENT))
    await AgentStore(link, SERVICE).announce(a_member("i-1"))
    await link.aclose()
    agent.call("HSET", KEYS.of("members"), "i-2", b"whatever it likes")
    assert [member.instance for member in store.members()] == ["i-1"]
    agent.call("HDEL", KEYS.of("members"), "i-2")
    store.forget_members()


REFUSED = [
    ("CONFIG", "GET", "*"), ("KEYS", "*"), ("SCAN", "0"), ("FLUSHALL",), ("FLUSHDB",), ("ACL", "LIST"),
    ("DEBUG", "SLEEP", "1"), ("SHUTDOWN",), ("REPLICAOF", "NO", "ONE"), ("MONITOR",), ("CLIENT", "LIST"),
    ("SCRIPT", "FLUSH"), ("DBSIZE",), ("INFO",), ("PUBLISH", "x", "y"), ("SUBSCRIBE", "x"),
    ("EVAL", "while true do end", "0"), ("SCRIPT", "LOAD", "return 1"), ("SCRIPT", "KILL"),
    ("MIGRATE", "10.0.0.1", "6379", "k", "0", "1000"), ("SET", KEYS.of("clock"), "{}"),
    ("DEL", KEYS.of("clock")), ("EXPIRE", KEYS.of("members"), "0"), ("SADD", KEYS.of("drains"), "i-2"),
    ("RENAME", KEYS.of("clock"), KEYS.of("seen")), ("XADD", KEYS.of("members"), "*", "line", "x"),
]  # fmt: skip


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_an_agent_gives_no_other_command(agent: Link, store: ServiceStore, words: tuple[str, ...]) -> None:
    with pytest.raises(RetryLater, match=r"no permissions|NOPERM"):
        agent.call(*words)
    assert store.clock() == ClockAnchor(wall_at=1.0)


def test_who_does_not_say_who_he_is_may_ask_whether_it_is_there_and_no_more(server: EmbeddedRedis) -> None:
    link = connect(server.url)
    assert link.call("PING")
    with pytest.raises(RetryLater, match=r"no permissions|NOPERM"):
        link.call("GET", KEYS.of("clock"))
    wrong = connect(url_of(server.url, StoreUser.AGENT, PASSWORDS[StoreUser.GATEWAY]))
    with pytest.raises(RetryLater, match=r"[Ii]nvalid username|WRONGPASS"):
        wrong.call("GET", KEYS.of("clock"))
    link.close()
    wrong.close()


def test_another_service_on_the_same_server_is_out_of_reach(server: EmbeddedRedis) -> None:
    for user in PROCESSES:
        link = connect(url(server, user))
        with pytest.raises(RetryLater, match=r"no permissions|NOPERM"):
            link.call("GET", Keys("other").of("clock"))
        link.close()


# The table against the code.


def test_controllers_may_give_every_command_of_the_store_and_no_other() -> None:
    """Other rows tell what agents, nodes and replicas do beyond it."""
    direct = {name.lower() for path in SOURCES for name in re.findall(r'\.call\(\s*"([A-Z]+)', path.read_text())}
    within = {name for script in SCRIPTS.values() for name in script.commands}
    known = {"eval", "evalsha"}
    granted = (*ACCESSES[StoreUser.CONTROLLER].commands, *ACCESSES[StoreUser.NODE].commands)
    assert {command.partition("|")[0] for command in granted} == direct | within | known


def test_the_scripts_of_a_class_are_those_of_its_user() -> None:
    text = Path("mark/store/data_plane.py").read_text()
    gateway, agent = text[text.index("class GatewayStore") :].split("class AgentStore")
    for user, part in ((StoreUser.GATEWAY, gateway), (StoreUser.AGENT, agent)):
        called = {SCRIPTS[name].sha for name in re.findall(r"\.run\((\w+)", part)}
        assert called | {SCRIPTS["WALL"].sha} == {script.sha for script in ACCESSES[user].scripts}


MODELS = st.text("abcxyz0123-_.", min_size=1, max_size=12)


def built(model: str, segment: int) -> dict[str, set[str]]:
    """Every key that the store builds, by the part of it that builds them."""
    report = GatewayReport(gateway="g", sequence=1, models=(ModelTraffic(model=model),))
    return {
        "members": set(KEYS.members),
        "announced": set(KEYS.announced),
        "drains": set(KEYS.drains),
        "walls": set(KEYS.walls),
        "peers": set(KEYS.peers),
        "report": set(report_keys(KEYS, report)),
        "traffic": set(traffic_keys(KEYS, model)),
        "agent": {KEYS.of("clock"), KEYS.of("served", model)},
        "gateway": {KEYS.of(part) for part in ("clients", "clock", "spec", "warmed", "status:budget")},
        "listing": set(KEYS.listing),
        "ledger": {KEYS.of(part, model) for part in ("ledger", "rollup")},
        "lease": {KEYS.of("lease"), KEYS.of("epoch")},
        "journal": {KEYS.of("journal", model), KEYS.of("journal", model, segment)},
        "documents": {KEYS.of("status", f"{name}:{model}") for name in MODEL_DOCUMENTS},
        "models": set(KEYS.of_model(model, range(1, segment + 1))) | {KEYS.of("models"), KEYS.of("retired")},
    }


USED = {
    StoreUser.AGENT: {"members", "announced", "walls", "agent"},
    StoreUser.GATEWAY: {"members", "listing", "walls", "peers", "report", "traffic", "gateway"},
    StoreUser.REPORT: {"traffic", "ledger", "journal", "documents"},
}


def allowed(user: StoreUser, key: str) -> bool:
    """As Redis matches: `*` is the only letter of a pattern that stands for others."""
    patterns = [KEYS.of(kind) for kind in ACCESSES[user].keys]
    return any(re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), key) for pattern in patterns)


@given(model=MODELS, segment=st.integers(1, 9))
def test_each_key_is_open_to_the_roles_that_use_it_and_to_no_other(model: str, segment: int) -> None:
    keys = built(model, segment)
    for user, parts in USED.items():
        mine = set().union(*(keys[part] for part in parts))
        mine |= {KEYS.of(part) for part in ("clock", "spec")} if user is StoreUser.REPORT else set()
        for key in set().union(*keys.values()):
            whole = (KEYS.of("status", ""), KEYS.of("journal", "")) if user is StoreUser.REPORT else ()
            assert allowed(user, key) == (key in mine or key.startswith(whole)), (user, key)
    assert all(allowed(StoreUser.CONTROLLER, key) for part in keys.values() for key in part)
    assert not any(ACCESSES[user].keys for user in (StoreUser.NODE, StoreUser.REPLICA))


def test_rules_are_words_that_elasticache_takes() -> None:
    for user in StoreUser:
        words = rules_of(user, SERVICE).split()
        assert words[0] == "on"
        assert all(re.fullmatch(r"~\S+|-@all|\+[a-z|]+", word) for word in words[1:])


def test_passwords_are_each_their_own() -> None:
    assert len({*make_passwords().values(), *make_passwords().values()}) == 2 * len(PROCESSES)
