"""The handshake of a gateway and an agent: only what both know the key of, on this connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.protocols.frames import VERSION, Cancel, Challenge, Goodbye, Hello, State, Welcome
from mark.protocols.handshake import AgentHandshake, GatewayHandshake, Refused, new_nonce, token_digest

nonces = st.binary(min_size=32, max_size=32)
keys = st.text("0123456789abcdef", min_size=1, max_size=64)
tokens = st.none() | st.text(min_size=16, max_size=40)


@given(keys, nonces, nonces, tokens)
def test_two_that_share_a_key_know_each_other(key: str, agents: bytes, gateways: bytes, token: str | None) -> None:
    agent, gateway = AgentHandshake(agents), GatewayHandshake(key, gateways, token)
    hello, welcome, known = agent.welcome(gateway.hello(agent.challenge()), ["", key])
    gateway.check(welcome)
    assert known == key

    assert hello.token_digest == token_digest(key, token)
    assert token is None or token.encode() not in b"".join(hello[1:])


@given(st.tuples(keys, keys).filter(lambda pair: pair[0] != pair[1]), nonces, nonces)
def test_neither_is_known_by_another_key(pair: tuple[str, str], agents: bytes, gateways: bytes) -> None:
    agent, gateway = AgentHandshake(agents), GatewayHandshake(pair[1], gateways, None)
    hello = gateway.hello(agent.challenge())

    with pytest.raises(Refused, match="does not know this agent's key"):
        agent.welcome(hello, [pair[0]])
    impostor = GatewayHandshake(pair[0], gateways, None)
    with pytest.raises(Refused, match="does not know the key"):
        gateway.check(agent.welcome(impostor.hello(agent.challenge()), [pair[0]])[1])


@given(keys, nonces, st.lists(nonces, min_size=2, max_size=2, unique=True))
def test_a_recorded_hello_is_of_no_use_on_another_connection(
    key: str, gateways: bytes, agents: list[bytes]
) -> None:
    first, second = (AgentHandshake(nonce) for nonce in agents)
    recorded = GatewayHandshake(key, gateways, None).hello(first.challenge())
    first.welcome(recorded, [key])

    with pytest.raises(Refused):
        second.welcome(recorded, [key])


@given(keys, st.data())
def test_a_changed_digest_spoils_the_proof(key: str, data: st.DataObject) -> None:
    agent, gateway = AgentHandshake(new_nonce()), GatewayHandshake(key, new_nonce(), "token")
    hello = gateway.hello(agent.challenge())

    with pytest.raises(Refused):
        agent.welcome(hello._replace(token_digest=data.draw(st.just(b"") | nonces)), [key])


def test_an_agents_own_proof_does_not_pass_for_a_gateways() -> None:
    agent, gateway = AgentHandshake(new_nonce()), GatewayHandshake("key", new_nonce(), None)
    hello = gateway.hello(agent.challenge())
    _, welcome, _ = agent.welcome(hello, ["key"])

    with pytest.raises(Refused):
        agent.welcome(hello._replace(proof=welcome.proof), ["key"])


def test_another_version_is_refused_with_both_named() -> None:
    agent, gateway = AgentHandshake(new_nonce()), GatewayHandshake("key", new_nonce(), None)

    with pytest.raises(Refused, match=f"the gateway uses frame version 2, this agent {VERSION}"):
        agent.welcome(Hello(2), ["key"])
    with pytest.raises(Refused, match=f"the agent uses frame version 99, this gateway {VERSION}"):
        gateway.hello(Challenge(99))


@pytest.mark.parametrize("frame", [Cancel(1), Goodbye()], ids=lambda frame: type(frame).__name__)
def test_nothing_comes_before_the_handshake(frame: Cancel | Goodbye) -> None:
    with pytest.raises(Refused, match="before a Hello"):
        AgentHandshake(new_nonce()).welcome(frame, ["key"])
    gateway = GatewayHandshake("key", new_nonce(), None)
    with pytest.raises(Refused, match="before a Challenge"):
        gateway.hello(frame)
    gateway.hello(Challenge(VERSION, new_nonce()))
    for early in (frame, State(0, True, False, 0, 0, 0.0, 1.0, 1.0, (0.1,))):
        with pytest.raises(Refused, match="before a Welcome"):
            gateway.check(early)
    with pytest.raises(Refused):
        gateway.check(Welcome(bytes(32)))
