"""Decisions of a central queue: queries join it, instances become free, a rule says which serves which.

Plain functions over arrays that the caller owns; times are ms. A replay compiles them into its kernel, a gateway
calls them through `central_queue.py`: both take the same decisions. Queries and instances are numbers. What
happens at one instant happens together: instances that became free, then queries that came, then one decision,
which leaves the pairs that start, and what is handed on, in `places`. An instance serves one query at a time.
Times are predicted ones: the truth is the caller's.

Rules that bind a query to a first-come-first-served lane when it arrives differ only in the lane: all instances
share one (FCFS), the base type and the others have one each (DeepRecSys), or each instance has one (Clockwork).
They serve their lanes in order: what is too late is held or committed to by Clockwork alone, which predicts that,
and handed on (to Lambda, or shed) by all.
Kairos, as ours and as published, keeps one queue and matches it anew at each event.

While a new version of the model is rolled out, each query is of one version and so is each instance. Only
instances of its own version are eligible for a query: lanes and matchings are a version's, by the same rule.
A query of the candidate that can no longer be in time leaves the queue: the stable version may still be.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.dispatch.central.assignment import Assignment, assign, assignment_room
from mark.dispatch.central.kairos import MOST_MATCHED, Instances, Timing, Waiting, fill_costs
from mark.dispatch.central.policy import CentralPolicy, CentralRule, Feasible, TooLate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FCFS, DRS, CLOCKWORK, KAIROS, PUBLISHED = range(5)
HOLD, COMMIT, OVERFLOW = range(3)
EARLIEST, LATEST, FIRST = range(3)
STABLE, CANDIDATE = range(2)
VERSIONS = 2
NONE = -1
"""No query or no instance: a constant, because compiled code has no optional integers."""
EVERY_ROW = int(np.iinfo(np.int64).max)
RULES = {
    CentralRule.FCFS: FCFS,
    CentralRule.DRS: DRS,
    CentralRule.CLOCKWORK: CLOCKWORK,
    CentralRule.KAIROS: KAIROS,
    CentralRule.KAIROS_PUBLISHED: PUBLISHED,
}
TOO_LATE = {TooLate.HOLD: HOLD, TooLate.COMMIT: COMMIT, TooLate.OVERFLOW: OVERFLOW}
FEASIBLE = {Feasible.EARLIEST: EARLIEST, Feasible.LATEST: LATEST, Feasible.FIRST: FIRST}

IDLE, IN_LANES, WAITING, HELD_FIRST, HELD, STARTED, DROPPED, MATCHED, PARTITIONED = range(9)
"""Places in `Line.counts`."""
COUNTS = 9


class Pool(NamedTuple):
    """Facts of the instance types; the base type is number 0."""

    timing: Timing
    #: shape (versions, rows), the least predicted latency on any instance of the pool
    best_ms: Floats


class Rules(NamedTuple):
    """Inputs that do not change."""

    rule: int
    too_late: int
    feasible: int
    #: rows above it go to the base type (DeepRecSys)
    threshold_row: int
    slo_ms: float
    admission_factor: float
    #: the same of the candidate's instances
    candidate_row: int = NONE
    #: 1, or 2 where a candidate has instances
    versions: int = 1


def rules_of(
    policy: CentralPolicy,
    *,
    slo_ms: float,
    threshold_row: int | None,
    base: int,
    others: int,
    candidates: tuple[int, int] = (0, 0),
) -> Rules:
    """The rules of a policy for a pool of `base` instances of the base type and `others`.

    Rows up to `threshold_row` go to the other types: all of them where there is no base, none where it is alone.
    candidates: the two numbers of a candidate's instances.
    """
    return Rules(
        rule=RULES[policy.rule],
        too_late=TOO_LATE[policy.too_late],
        feasible=FEASIBLE[policy.feasible],
        threshold_row=_threshold_row(threshold_row, base, others),
        slo_ms=slo_ms,
        admission_factor=policy.admission_factor,
        candidate_row=_threshold_row(threshold_row, *candidates),
        versions=VERSIONS if sum(candidates) else 1,
    )


def _threshold_row(row: int | None, base: int, others: int) -> int:
    if not others:
        return NONE
    return EVERY_ROW if not base or row is None else row


Records = Any
"""A record array; numpy's stubs cannot name a record's fields."""

MACHINE_FIELDS = {
    "kind": "i8",  # its type; machines stand in the order in which ties are broken
    "idle": "i8",  # 1 where it serves nothing
    "version": "i8",  # STABLE or CANDIDATE
    "lane": "i8",  # whose queries it serves
    "settled": "i8",  # 1 where this decision has a pair for it
    "free_ms": "f8",  # predicted end of what it serves
    "backlog_ms": "f8",  # what later queries of its lane take (Clockwork)
}
LANE_FIELDS = {"first": "i8", "last": "i8"}
QUERY_FIELDS = {
    "arrived_ms": "f8",
    "row": "i8",  # of the profile that its size takes
    "version": "i8",  # of the instances that may serve it
    "behind": "i8",  # the next query of its lane
    "gone": "i8",  # 1 where it is to leave
    "takes_ms": "f8",  # what it counts in its lane's backlog (Clockwork)
}
MORE_LANES = 2 * VERSIONS - 1
"""With one instance there are still the lanes of DeepRecSys, two of a version."""
PLACE_FIELDS = {
    "waiting": "i8",  # queries to match, in order of arrival
    "held": "i8",  # queries that can no longer be in time: a ring from HELD_FIRST on
    "dropped": "i8",  # queries that are handed on
    "query": "i8",  # the pairs that start
    "machine": "i8",
}


class Line(NamedTuple):
    """The queue's state: few arrays, because compiled code counts references to each one that it is handed."""

    counts: Ints
    #: shape (instances,), MACHINE_FIELDS
    machines: Records
    #: shape (instances + MORE_LANES,), LANE_FIELDS
    lanes: Records
    #: shape (queries,), QUERY_FIELDS
    queries: Records
    #: shape (queries,), PLACE_FIELDS: `counts` says how many of each are in use
    places: Records


class Scratch(NamedTuple):
    """Room to match in."""

    ints: Ints
    floats: Floats
    costs: Floats


def make_line(queries: int, kinds: Ints, versions: Ints | None = None) -> Line:
    """An empty line for so many queries at once, and for instances of these types and versions."""
    machines = _records(MACHINE_FIELDS, kinds.size)
    machines["kind"] = kinds
    if versions is not None:
        machines["version"] = versions
    lanes = _records(LANE_FIELDS, kinds.size + MORE_LANES)
    return Line(
        np.zeros(COUNTS, np.int64),
        machines,
        lanes,
        _records(QUERY_FIELDS, queries),
        _records(PLACE_FIELDS, queries),
    )


def _records(fields: dict[str, str], count: int) -> Records:
    return np.zeros(count, dtype=list(fields.items())).view(np.recarray)


def make_scratch() -> Scratch:
    """Room for one assignment of MOST_MATCHED queries and instances."""
    largest = MOST_MATCHED
    return Scratch(np.zeros((10, largest), np.int64), np.zeros((5, largest)), np.zeros((largest, largest)))


def open_line(rules: Rules, line: Line) -> None:
    """Begin with all instances idle and nobody waiting."""
    counts, machines, lanes = line.counts, line.machines, line.lanes
    counts[:] = 0
    counts[IDLE] = machines.size
    for number in range(machines.size):
        machine = machines[number]
        machine.idle = 1
        machine.free_ms = machine.backlog_ms = 0.0
        machine.lane = machine.version
        if rules.rule == CLOCKWORK:
            machine.lane = number
        elif rules.rule == DRS:
            machine.lane = 2 * machine.version + (1 if machine.kind > 0 else 0)
    for lane in range(lanes.size):
        lanes[lane].first = NONE


def join(now: float, query: int, latency_ms: Floats, rules: Rules, line: Line) -> None:
    """A query arrives: it waits to be matched, is bound to a lane, or is put aside."""
    counts, machines, lanes, queries = line.counts, line.machines, line.lanes, line.queries
    if rules.rule >= KAIROS:
        line.places[counts[WAITING]].waiting = query
        counts[WAITING] += 1
        return
    row, version = queries[query].row, queries[query].version
    number = version
    if rules.rule == DRS:
        threshold_row = rules.threshold_row if version == STABLE else rules.candidate_row
        number = 2 * version + (1 if row <= threshold_row else 0)
    elif rules.rule == CLOCKWORK:
        number = _predicted_in_time(now, query, latency_ms, rules, line)
        if number == NONE:
            _put_aside(query, rules, line)
            return
        takes_ms = latency_ms[machines[number].kind, row]
        queries[query].takes_ms = takes_ms
        machines[number].backlog_ms += takes_ms
    lane = lanes[number]
    queries[query].behind = NONE
    if lane.first == NONE:
        lane.first = query
    else:
        queries[lane.last].behind = query
    lane.last = query
    counts[IN_LANES] += 1


def hold(query: int, line: Line) -> None:
    """Keep a query for when an instance would idle."""
    counts, places = line.counts, line.places
    places[(counts[HELD_FIRST] + counts[HELD]) % places.size].held = query
    counts[HELD] += 1


def begin_lanes(now: float, pool: Pool, rules: Rules, line: Line) -> None:
    """First part of a decision: idle instances take the oldest query of their lane.

    Where what is too late is handed on, it leaves a lane when its turn comes: when no instance of the pool would
    answer it in time any more.
    """
    counts, machines, lanes, queries, places = line.counts, line.machines, line.lanes, line.queries, line.places
    latency_ms = pool.timing.latency_ms
    counts[STARTED] = 0
    if counts[IN_LANES] == 0 or counts[IDLE] == 0:
        return
    for number in range(machines.size):
        machine = machines[number]
        lane = lanes[machine.lane]
        if lane.first == NONE or machine.idle == 0:
            continue
        if rules.too_late == OVERFLOW:
            _hand_late_on(now, number, pool, rules, line)
        query = lane.first
        if query == NONE:
            continue
        asked = queries[query]
        lane.first = asked.behind
        counts[IN_LANES] -= 1
        machine.backlog_ms = machine.backlog_ms - asked.takes_ms if asked.behind != NONE else 0.0
        # as in `start`, which would be handed all arrays once more for each query
        machine.free_ms = now + latency_ms[machine.kind, asked.row]
        machine.idle = 0
        counts[IDLE] -= 1
        pair = places[counts[STARTED]]
        pair.query, pair.machine = query, number
        counts[STARTED] += 1


def _hand_late_on(now: float, number: int, pool: Pool, rules: Rules, line: Line) -> None:
    """Hand on the first queries of an instance's lane that are too late."""
    machine, queries, best_ms = line.machines[number], line.queries, pool.best_ms
    lane = line.lanes[machine.lane]
    while lane.first != NONE:
        asked = queries[lane.first]
        if now - asked.arrived_ms + best_ms[asked.version, asked.row] <= rules.slo_ms:
            break
        _put_aside(lane.first, rules, line)
        machine.backlog_ms = machine.backlog_ms - asked.takes_ms if asked.behind != NONE else 0.0
        lane.first = asked.behind
        line.counts[IN_LANES] -= 1


def begin_waiting(now: float, pool: Pool, rules: Rules, line: Line, scratch: Scratch) -> None:
    """Second part: what waits is matched, and held queries start where nothing else does."""
    counts = line.counts
    if counts[IDLE] == 0:
        return
    if counts[WAITING] > 0:
        if rules.too_late != COMMIT:
            put_too_late_aside(now, pool, rules, line)
        _match_queue(now, pool, rules, line, _matching_in(scratch))
    if counts[HELD] > 0 and counts[IDLE] > 0:
        start_held(now, pool, rules, line)


def start_held(now: float, pool: Pool, rules: Rules, line: Line) -> None:
    """Start held queries on instances that would idle otherwise: nothing of their version waits for one."""
    counts, places, queries = line.counts, line.places, line.queries
    is_open, candidate_open = counts[WAITING] == 0, counts[WAITING] == 0 and rules.versions > 1
    if rules.versions > 1 and counts[WAITING] > 0:
        is_open = candidate_open = True
        for place in range(counts[WAITING]):
            if queries[places[place].waiting].version == STABLE:
                is_open = False
            else:
                candidate_open = False
    passed = 0
    while passed < counts[HELD] and counts[IDLE] > 0 and (is_open or candidate_open):
        first = counts[HELD_FIRST]
        query = places[(first + passed) % places.size].held
        is_stable = queries[query].version == STABLE
        machine = NONE
        if is_open if is_stable else candidate_open:
            machine = _least_worth(query, pool, line)
            if machine == NONE and is_stable:
                is_open = False
            elif machine == NONE:
                candidate_open = False
        if machine == NONE:
            passed += 1
            continue
        for place in range(first + passed, first, -1):
            places[place % places.size].held = places[(place - 1) % places.size].held
        counts[HELD_FIRST] = (first + 1) % places.size
        counts[HELD] -= 1
        start(now, query, machine, pool.timing.latency_ms, line)


def decide(now: float, pool: Pool, rules: Rules, line: Line, scratch: Scratch) -> None:
    """Start what is to start now: the first STARTED of `places.query` and `places.machine`."""
    begin_lanes(now, pool, rules, line)
    begin_waiting(now, pool, rules, line, scratch)


def leave(rules: Rules, line: Line) -> None:
    """Remove the queries that are marked as gone, wherever they wait; one pass, however many they are."""
    counts, queries, places = line.counts, line.queries, line.places
    kept = 0
    for place in range(counts[WAITING]):
        if queries[places[place].waiting].gone == 0:
            places[kept].waiting = places[place].waiting
            kept += 1
    counts[WAITING] = kept
    kept = 0
    for place in range(counts[HELD_FIRST], counts[HELD_FIRST] + counts[HELD]):
        held = places[place % places.size].held
        if queries[held].gone == 0:
            places[(counts[HELD_FIRST] + kept) % places.size].held = held
            kept += 1
    counts[HELD] = kept
    kept = 0
    for place in range(counts[DROPPED]):
        if queries[places[place].dropped].gone == 0:
            places[kept].dropped = places[place].dropped
            kept += 1
    counts[DROPPED] = kept
    for number in range(line.lanes.size):
        _leave_lane(number, rules, line)


def _leave_lane(number: int, rules: Rules, line: Line) -> None:
    lane, queries = line.lanes[number], line.queries
    before, at, gone_ms = NONE, lane.first, 0.0
    while at != NONE:
        behind = queries[at].behind
        if queries[at].gone == 0:
            before = at
        else:
            if before == NONE:
                lane.first = behind
            else:
                queries[before].behind = behind
            gone_ms += queries[at].takes_ms
            line.counts[IN_LANES] -= 1
        at = behind
    lane.last = before
    if rules.rule == CLOCKWORK and number < line.machines.size:
        machine = line.machines[number]
        machine.backlog_ms = machine.backlog_ms - gone_ms if lane.first != NONE else 0.0


def start(now: float, query: int, machine: int, latency_ms: Floats, line: Line) -> None:
    """Let this query start on this instance."""
    counts, taken, pair = line.counts, line.machines[machine], line.places[line.counts[STARTED]]
    taken.free_ms = now + latency_ms[taken.kind, line.queries[query].row]
    taken.idle = 0
    counts[IDLE] -= 1
    pair.query, pair.machine = query, machine
    counts[STARTED] += 1


def _put_aside(query: int, rules: Rules, line: Line) -> None:
    """It can no longer be in time: it is held, or leaves the queue."""
    if rules.too_late == OVERFLOW or line.queries[query].version != STABLE:
        line.places[line.counts[DROPPED]].dropped = query
        line.counts[DROPPED] += 1
    else:
        hold(query, line)


def _predicted_in_time(now: float, query: int, latency_ms: Floats, rules: Rules, line: Line) -> int:
    """Clockwork's choice among the instances that are predicted to finish it in time."""
    best, best_at, earliest, earliest_at = NONE, np.inf, NONE, np.inf
    asked = line.queries[query]
    limit = asked.arrived_ms + rules.admission_factor * rules.slo_ms
    machines = line.machines
    for number in range(machines.size):
        machine = machines[number]
        if machine.version != asked.version:
            continue
        at = max(now, machine.free_ms) + machine.backlog_ms
        at += latency_ms[machine.kind, asked.row]
        if at < earliest_at:
            earliest, earliest_at = number, at
        if at > limit:
            continue
        rank = at
        if rules.feasible == LATEST:
            rank = -at
        elif rules.feasible == FIRST:
            rank = float(number)
        if rank < best_at:
            best, best_at = number, rank
    if best == NONE and rules.too_late == COMMIT:
        return earliest
    return best


def _least_worth(query: int, pool: Pool, line: Line) -> int:
    """The idle instance without a lane of its own to serve whose time for the query is worth least."""
    best, least = NONE, np.inf
    latency_ms, weight, machines, lanes = pool.timing.latency_ms, pool.timing.weight, line.machines, line.lanes
    row, version = line.queries[query].row, line.queries[query].version
    for number in range(machines.size):
        machine = machines[number]
        if machine.idle == 0 or machine.version != version or lanes[machine.lane].first != NONE:
            continue
        worth = weight[machine.kind] * latency_ms[machine.kind, row]
        if worth < least:
            best, least = number, worth
    return best


def put_too_late_aside(now: float, pool: Pool, rules: Rules, line: Line) -> None:
    """Put aside what waits to be matched and can no longer be in time."""
    places, queries, best_ms, kept = line.places, line.queries, pool.best_ms, 0
    for place in range(line.counts[WAITING]):
        query = places[place].waiting
        asked = queries[query]
        if now - asked.arrived_ms + best_ms[asked.version, asked.row] > rules.slo_ms:
            _put_aside(query, rules, line)
        else:
            places[kept].waiting = query
            kept += 1
    line.counts[WAITING] = kept


class _Matching(NamedTuple):
    """One assignment: the queries' places in the queue, and the instances."""

    place: Ints
    row: Ints
    machine: Ints
    kind: Ints
    query_settled: Ints
    waited_ms: Floats
    remaining_ms: Floats
    costs: Floats
    room: Assignment


def _matching_in(scratch: Scratch) -> _Matching:
    ints, floats = scratch.ints, scratch.floats
    room = assignment_room(ints[5:], floats[2:])
    return _Matching(ints[0], ints[1], ints[2], ints[3], ints[4], floats[0], floats[1], scratch.costs, room)


def _match_queue(now: float, pool: Pool, rules: Rules, line: Line, matching: _Matching) -> None:
    """Match the queue to the pool and start the pairs whose instance is idle.

    Up to MOST_MATCHED of both are one assignment. Beyond, queries in order of arrival meet parts of the pool, each
    with its share of every type; a query or instance that got a pair in time takes no further part.
    """
    counts, machines, places = line.counts, line.machines, line.places
    parts = (machines.size + MOST_MATCHED - 1) // MOST_MATCHED
    counts[MATCHED] += 1
    counts[PARTITIONED] += counts[WAITING] > MOST_MATCHED or parts > 1
    for number in range(machines.size):
        machines[number].settled = 0
    for begin in range(0, counts[WAITING], MOST_MATCHED):
        matching.query_settled[:] = 0
        end = min(begin + MOST_MATCHED, counts[WAITING])
        for turn in range(parts * rules.versions):
            version, part = turn % rules.versions, (begin // MOST_MATCHED + turn // rules.versions) % parts
            count = _part_of_pool(now, version, part, parts, line, matching)
            if count > 0 and counts[IDLE] > 0:
                _match_part(now, version, begin, end, count, pool, rules, line, matching)
        if counts[IDLE] == 0:
            break
    kept = 0
    for place in range(counts[WAITING]):
        if places[place].waiting != NONE:
            places[kept].waiting = places[place].waiting
            kept += 1
    counts[WAITING] = kept


def _part_of_pool(now: float, version: int, part: int, parts: int, line: Line, matching: _Matching) -> int:
    """A version's instances of one part without a pair yet, into `matching`; how many, and 0 if none idles."""
    count, idle, machines = 0, 0, line.machines
    for number in range(part, machines.size, parts):
        machine = machines[number]
        if machine.settled == 0 and machine.version == version:
            matching.machine[count] = number
            matching.kind[count] = machine.kind
            matching.remaining_ms[count] = 0.0
            if machine.idle == 0:
                matching.remaining_ms[count] = max(0.0, machine.free_ms - now)
            else:
                idle += 1
            count += 1
    return count if idle > 0 else 0


def _match_part(  # noqa: PLR0913, PLR0917 - compiled code takes no object that holds them
    now: float,
    version: int,
    begin: int,
    end: int,
    machines: int,
    pool: Pool,
    rules: Rules,
    line: Line,
    matching: _Matching,
) -> None:
    """One assignment: a version's places [begin, end) that have no pair yet, to the instances in `matching`."""
    places, queries, latency_ms, count = line.places, line.queries, pool.timing.latency_ms, 0
    for place in range(begin, end):
        if matching.query_settled[place - begin] == 0:
            asked = queries[places[place].waiting]
            if asked.version != version:
                continue
            matching.place[count] = place
            matching.waited_ms[count] = now - asked.arrived_ms
            matching.row[count] = asked.row
            count += 1
    if count == 0:
        return
    waiting = Waiting(matching.waited_ms[:count], matching.row[:count])
    instances = Instances(matching.kind[:machines], matching.remaining_ms[:machines])
    is_published = rules.rule == PUBLISHED
    fill_costs(matching.costs, waiting, instances, pool.timing, rules.slo_ms, rules.admission_factor, is_published)
    assign(matching.costs, min(count, machines), max(count, machines), matching.room)
    for pair in range(min(count, machines)):
        other = matching.room.column_of[pair]
        asking, at = (pair, other) if count <= machines else (other, pair)
        machine, place = matching.machine[at], matching.place[asking]
        query = places[place].waiting
        takes_ms = matching.remaining_ms[at] + latency_ms[matching.kind[at], matching.row[asking]]
        in_time = matching.waited_ms[asking] + takes_ms <= rules.slo_ms
        if not (in_time or rules.too_late == COMMIT):
            continue
        matching.query_settled[place - begin] = 1
        line.machines[machine].settled = 1
        if line.machines[machine].idle == 1:
            places[place].waiting = NONE
            start(now, query, machine, latency_ms, line)
