"""Records of the last release, for those who read it in the next one: recorded from a running service.

`python -m tests.store.released FOLDER` records it anew (FOLDER: the state of a service of `mark up` whose models
share instances). Do so when a release is made, and never for a change between two: the test compares with it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from mark.domain.fleet.host_spec import SHARED
from mark.live.local.run_dir import RunFolder
from mark.protocols.frames import VERSION
from mark.store.codec import SPEC
from mark.store.connect import connect
from mark.store.keys import Keys
from mark.store.service import ServiceStore
from mark.store.users import ACCESSES, PROCESSES, UNSENT

RECORDED = Path(__file__).with_suffix(".json")
LINES = 3
"""Of each journal: its header, and what two ticks or decisions came to."""


def recorded() -> dict[str, Any]:
    """The record."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def record(folder: RunFolder) -> dict[str, Any]:
    """One of each kind that the service has in its store, and what this release relies on there."""
    running = folder.running()
    assert running is not None, "the service must run"
    link, keys = connect(running.store), Keys(running.name)
    store = ServiceStore(link, running.name)
    spec, models = store.spec(), {member.model: member for member in store.members()}
    alone = next(name for name, member in models.items() if not member.is_tenant and name != SHARED)
    tenant = next(name for name, member in models.items() if member.is_tenant)
    texts = {
        "SPEC": SPEC.encode(replace(spec, models=spec.models[:1])),
        "AGENT_SPEC": link.call("GET", keys.of("served", spec.models[0].name)),
        "CLOCK": link.call("GET", keys.of("clock")),
        "MEMBER": link.call("HGET", keys.of("members"), models[tenant].name),
        "PEER": link.call("HVALS", keys.of("peers"))[0],
        "HOST_SPEC": link.call("HVALS", keys.of("held"))[0],
        "LISTED": link.call("HGET", keys.of("fleet"), alone),
        "TRANSITION": link.call("LRANGE", keys.of("ledger", alone), 0, 0)[0],
        "VERSIONS": link.call("HGET", keys.of("versions"), tenant),
        "WARMED": link.call("HVALS", keys.of("warmed"))[0],
    }
    journals = {"model": alone, "placements": SHARED}
    return {
        "frames": VERSION,
        "texts": {name: text.decode() for name, text in texts.items()},
        "journals": {
            kind: [line.decode() for line in islice(store.journal_lines(name), LINES)]
            for kind, name in journals.items()
        },
        "scripts": [script.sha for script in UNSENT],
        "rights": {
            user: {"keys": " ".join(ACCESSES[user].keys), "commands": " ".join(ACCESSES[user].commands)}
            for user in PROCESSES
        },
    }


if __name__ == "__main__":
    told = json.dumps(record(RunFolder(Path(sys.argv[1]))), indent=1)
    RECORDED.write_text(told.replace(sys.argv[1], "/srv/mark") + "\n", encoding="utf-8")
