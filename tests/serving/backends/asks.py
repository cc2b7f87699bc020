"""What tests ask of backends, and what they make of the answers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import numpy as np

from mark.catalog.load import load_models, load_prices, load_profiles
from mark.catalog.offerings import make_offerings, standby_offering
from mark.domain.offerings.offering import Market
from mark.domain.tensor import TensorSpec
from mark.ports import InferRequest
from mark.protocols.oip.bodies import compose_infer, parse_infer_reply

PATH = "/v2/models/m/infer"
INPUTS = (TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),)
OUTPUTS = (TensorSpec(name="y", datatype="FP32", shape=(-1, 1)),)


def tensor(*rows):
    return np.array(rows, dtype=np.float32)


def ask(*rows, binary=False):
    """A request for x."""
    return compose_infer({"x": tensor(*rows)}, path=PATH, binary=binary)


def wrong(body=b"{"):
    return InferRequest(path=PATH, content_type="application/json", body=body)


def invocation(*rows):
    body = json.dumps({"instances": [list(row) for row in rows]}).encode()
    return InferRequest(path="/endpoints/m/invocations", content_type="application/json", body=body)


def outputs(reply, name="y"):
    assert reply.status == 200, reply.body
    return parse_infer_reply(reply.body, reply.header_length)[name].tolist()


def error(reply):
    return json.loads(reply.body)["error"]


def run(backend, *batches):
    """Start, answer the batches one after another, close."""

    async def scenario():
        try:
            await backend.start()
            return [await backend.infer(batch) for batch in batches]
        finally:
            await backend.close()

    return asyncio.run(scenario())


def inception(instance_type="c5.large"):
    """An offering of Inception-v3."""
    model, prices = load_models()["inception-v3"], load_prices()
    profiles = load_profiles("inception-v3", ("assumed-batch-curve",))
    if instance_type.startswith("t"):
        return standby_offering(
            model, slo=model.slo, prices=prices, profiles=profiles, instance_type=instance_type
        )
    found, _ = make_offerings(
        model, slo=model.slo, prices=prices, profiles=profiles, market=Market.ON_DEMAND, types=(instance_type,)
    )
    return found[0]


def of_batches(offering, latency_by_batch):
    """The same offering with a profile of these seconds."""
    point = offering.profile.points[0]
    points = tuple(replace(point, batch=batch, latency_s=s) for batch, s in latency_by_batch.items())
    largest = max(latency_by_batch)
    return replace(
        offering,
        profile=replace(offering.profile, points=points),
        batch=replace(offering.batch, max_batch=largest),
    )
