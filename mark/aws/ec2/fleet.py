"""`Ec2Cloud`: the Cloud port on EC2, for one model of a service.

Everything here may be asked again: launches carry the order's token, ends and starts are what they are however
often they are asked for. An order that AWS throttles, after boto3's own retries, is kept and sent again at the
next `observe`, in its turn, until `resend_limit_s`; then it is dropped, the controller forgets it too, and orders
anew what is still missing. What the plan wants no more of a launch that waits is withdrawn. What AWS refuses of a
launch or a wake, or a guardrail cuts off it, becomes a LaunchRefused; what it refuses of a stop or an end is an
error in the log, once, and a trouble until it is done. No order ends a term, whatever AWS answers. A listing that
AWS does not give is replaced by the last one for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from mark.aws.ec2.batches import call_each
from mark.aws.ec2.guard import Guard
from mark.aws.ec2.inventory import described
from mark.aws.ec2.launch import (
    LIVE,
    FleetSetup,
    fleet_request,
    launched_rows,
    refused,
    row_of,
    shortfall,
    unfilled,
    wakes_held_back,
    wakes_refused,
)
from mark.aws.ec2.observed import Ec2Row, fleet_view
from mark.aws.ec2.spot_prices import ObservedSpotPrices
from mark.aws.ec2.stuck_instances import StuckInstances
from mark.aws.ec2.tags import MODEL, RUN, SERVICE, TOKEN
from mark.aws.ec2.transitions import Transitions
from mark.aws.ec2.troubles import Troubles
from mark.aws.errors import cause_of, code_of, family_of, refused_is_later, remedy, translated
from mark.aws.inbox import Arrived, EventInbox
from mark.aws.session import Aws
from mark.domain.errors import AlreadyDone, MarkError, Misconfigured, NoCapacity, RetryLater
from mark.domain.fleet.instances import FleetView, Instance
from mark.domain.fleet.listing import ListedInstance
from mark.domain.fleet.member import Member, MemberState
from mark.domain.fleet.orders import (
    Drain,
    Fact,
    Launch,
    LaunchFailed,
    LaunchWithdrawn,
    Order,
    RebalanceAdvised,
    RefusalCause,
    SpotWarned,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
    Withdraw,
)
from mark.domain.offerings.offering import current_usd_per_hour
from mark.ports import Clock, Ledger, Membership
from mark.protocols.events import StateChanged

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import CreateFleetResultTypeDef, ReservationTypeDef

_log = logging.getLogger(__name__)

NO_FAILURES = ("Client.UserInitiatedShutdown", "Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")
"""Codes of instances that somebody ended, or that AWS took away: nothing is wrong with how they were launched."""
FILTER_VALUES = 200
"""Values that EC2 takes in one filter."""
SERVES = (MemberState.READY, MemberState.DRAINING)


class Ec2Cloud:
    """The fleet of one model on EC2.

    `inbox` and `guard` are shared by the models of a service. `warm` pings so many Lambda environments; it is
    called from a thread of its own.
    """

    def __init__(
        self,
        setup: FleetSetup,
        *,
        aws: Aws,
        clock: Clock,
        membership: Membership,
        ledger: Ledger,
        inbox: EventInbox,
        guard: Guard,
        warm: Callable[[int], object] | None = None,
    ) -> None:
        self._setup = setup
        self._ec2, self._waking = aws.ec2, aws.waking
        self._clock = clock
        self._membership = membership
        self._inbox = inbox
        self._guard = guard
        self._warm = warm
        self._warmer = ThreadPoolExecutor(1, thread_name_prefix="warm-up")
        self._warming: Future[object] | None = None
        self._prices = ObservedSpotPrices(aws, setup.offerings, {zone for zone, _ in setup.subnets})
        self._transitions = Transitions(ledger, setup.model, usd_per_hour=self._prices.usd_per_hour)
        self._stuck = StuckInstances(
            drain_limit_s=setup.drain_limit_s, silent_limit_s=setup.silent_limit_s, lost_limit_s=setup.lost_limit_s
        )
        self._rows: dict[str, Ec2Row] = {}
        self._unlisted: dict[str, Ec2Row] = {}
        self._troubles = Troubles()
        self._unproven: dict[str, Ec2Row] = {}
        self._unanswered: list[tuple[float, Launch]] = []
        self._withdrawn: list[tuple[float, Launch, int]] = []
        self._listed_at: float | None = None
        self._draining: set[str] = set()
        self._warned: dict[str, float] = {}
        self._unsent: list[tuple[float, Order]] = []
        self._facts: list[Fact] = []
        self._claimed: list[Arrived] = []
        self._unacknowledged: list[Arrived] = []

    # The Cloud port.

    def observe(self) -> FleetView:
        """All instances that are not gone."""
        now = self._clock.now()
        self._prices.read(now)
        self._guard.update_prices(self._prices.known())
        self._send_again(now)
        self._list(now)
        self._tell_lacking(now)
        members = self._membership.members()
        self._transitions.read_surplus({one.instance: one.surplus_vcpu_s for one in members}, now)
        rows = self._rows | self._unlisted
        self._draining = {name for name in self._draining if self._still_drains(name)}
        self._warned = {name: at for name, at in self._warned.items() if self._transitions.knows(name)}
        view = fleet_view(rows.values(), members, draining=self._draining, warned=self._warned)
        view = replace(view, spot_usd_per_hour=self._prices.lowest())
        self._unlisted = {  # each was in one view at least: what is gone then is ordered anew, not waited for
            name: row
            for name, row in self._unlisted.items()
            if now - row.launched_at < self._setup.unlisted_limit_s
        }
        self._troubles.forget_gone(rows)
        self._note_unproven(rows, members, now)
        self._end_stuck(self._stuck.names(view, rows, now, {member.instance for member in members}), rows, now)
        return view

    def drain_facts(self) -> Sequence[Fact]:
        """Take what happened since the last call; the messages behind it stay in the queue until `acknowledge`."""
        self.poll_events()
        facts, self._facts = self._facts, []
        self._unacknowledged += self._claimed
        self._claimed = []
        return facts

    def acknowledge(self) -> None:
        """Delete the messages behind the facts drained so far; where the queue is unreachable, the next time."""
        try:
            self._inbox.ack(self._unacknowledged)
        except MarkError as error:
            _log.warning("messages that the journal has cannot be deleted now and are deleted later: %s", error)
        else:
            self._unacknowledged = []

    def poll_events(self) -> None:
        """Write state changes from the queue into the ledger; notices wait for `drain_facts`."""
        claimed = self._inbox.claim(self._transitions.knows)
        try:
            for arrived in claimed:
                self._facts.extend(self._fact_of(arrived))
        except RetryLater:  # the ledger is unreachable: the queue gives the messages again, nothing is lost
            self._inbox.release(claimed)
            raise
        self._claimed += claimed
        if any(arrived.word.instance in self._unlisted for arrived in claimed):
            with suppress(RetryLater):  # the next tick lists it; its agent may be there before
                self._list(self._clock.now())

    def submit(self, order: Order) -> None:
        """Send an order; its result is seen by a later `observe` or `drain_facts`. To withdraw takes no call."""
        now = self._clock.now()
        if not isinstance(order, Withdraw) and any(_lane(waiting) == _lane(order) for _, waiting in self._unsent):
            self._unsent.append((now, order))
            return
        self._try(order, now)

    @property
    def has_pending_facts(self) -> bool:
        """True after a refusal or a notice since facts were drained: the controller should tick at once."""
        return bool(self._facts)

    @property
    def troubles(self) -> tuple[str, ...]:
        """Orders that AWS refuses and nobody but a person can mend, as sentences."""
        return self._troubles.sentences

    def usd_per_hour(self, instance: Instance) -> float | None:
        """The price of an instance of this fleet now; None where its offering is not known."""
        offering = self._setup.offerings.get(instance.offering)
        return None if offering is None else current_usd_per_hour(offering, instance.zone, self._prices.known())

    def close(self) -> None:
        """End the warm-up thread; returns when the pings under way have."""
        self._warmer.shutdown(cancel_futures=True)

    # What is there.

    def _list(self, now: float) -> None:
        """List the instances; the last listing stays where AWS is unreachable, for a while."""
        try:
            listed = self._listed()
        except RetryLater as error:
            if self._listed_at is None or now - self._listed_at > self._setup.stale_limit_s:
                raise
            _log.warning(
                "instances cannot be listed; using the listing of %.0f s ago: %s", now - self._listed_at, error
            )
            return
        if self._listed_at is None:  # of what was there before, what boots may still fail
            self._unproven |= {name: row for name, row in listed.items() if row.state == "pending"}
        known = self._unlisted | self._missing(listed, now)
        self._rows = listed
        self._unlisted = {name: row for name, row in known.items() if name not in self._rows}
        self._listed_at = now
        self._guard.update_inventory(self._setup.model, self._rows | self._unlisted)
        self._transitions.listed(self._rows, now)
        told = {name: ListedInstance(host=row.host, version=row.version) for name, row in sorted(listed.items())}
        self._membership.list_instances(told)

    def _missing(self, listed: Collection[str], now: float) -> dict[str, Ec2Row]:
        """Young rows that an earlier listing had and this one has not, though nothing says that they ended.

        EC2 is eventually consistent: of two listings the later one may know less.
        """
        young = {
            name: row
            for name, row in self._rows.items()
            if name not in listed and now - row.launched_at < self._setup.unlisted_limit_s
        }
        if not young:
            return {}
        try:
            ended = self._state_reasons([*young])
        except RetryLater as error:
            _log.info("whether instances ended is asked at the next pass: %s", error)
            return young
        return {name: row for name, row in young.items() if name not in ended}

    def _listed(self, **tags: str) -> dict[str, Ec2Row]:
        """The model's instances that are not gone, by id; those with these tags besides."""
        tags = {SERVICE: self._setup.service, MODEL: self._setup.model, **tags}
        with refused_is_later():
            found = described(self._ec2, {f"tag:{key}": [value] for key, value in tags.items()})
            return {row.id: row for row in (row_of(self._setup, instance) for instance in found)}

    def _still_drains(self, name: str) -> bool:
        return name in self._rows and self._rows[name].state != "stopped"

    def _end_stuck(self, stuck: Collection[str], rows: Mapping[str, Ec2Row], now: float) -> None:
        """End what drains or keeps silent for too long: its agent will not end it.

        Standbys, too: one that was stopped instead would be woken again, as silent as before. One that AWS has
        refused to end is left alone for a while.
        """
        late = [rows[name] for name in stuck if not self._troubles.is_recent(name, now)]
        for row in late:
            if row.id in self._unproven and row.id not in self._draining:
                self._failed(row, "", self._stuck.reason(row.id), now)
        if not late:
            return
        names = [row.id for row in late]
        _log.warning("instances are stuck and ended: %s", ", ".join(names))
        try:
            self._terminate(names)
        except RetryLater as error:
            _log.warning("stuck instances are ended at the next pass: %s", error)

    def _note_unproven(self, rows: Collection[str], members: Sequence[Member], now: float) -> None:
        """Tell of launched instances that are gone before their agents were ever ready, and why."""
        for member in members:
            if member.state in SERVES:
                self._unproven.pop(member.instance, None)
        gone = [name for name in self._unproven if name not in rows]
        if not gone:
            return
        try:
            reasons = self._state_reasons(gone)
        except RetryLater as error:
            _log.info("why instances ended is asked at the next pass: %s", error)
            return
        for name in gone:
            row = self._unproven.pop(name)
            code, message = reasons.get(name, ("", ""))
            if name not in self._warned and code not in NO_FAILURES:
                self._failed(row, code, message, now)

    def _failed(self, row: Ec2Row, code: str, why: str, now: float) -> None:
        """Tell of a launch that failed."""
        fact = LaunchFailed(instance=row.id, offering=row.offering, code=code, detail=why, at=now)
        self._unproven.pop(row.id, None)
        self._facts.append(fact)
        _log.error("instance %s of %s ended before it was ready: %s", row.id, row.offering, fact.why)

    def _state_reasons(self, names: Sequence[str]) -> dict[str, tuple[str, str]]:
        """AWS's code and message of why instances ended, by id; it lists them for an hour or so."""
        listed: list[ReservationTypeDef] = []
        for start in range(0, len(names), FILTER_VALUES):
            some = list(names[start : start + FILTER_VALUES])
            with refused_is_later():
                reply = self._ec2.describe_instances(Filters=[{"Name": "instance-id", "Values": some}])
            listed += reply["Reservations"]
        return {
            instance["InstanceId"]: (
                instance.get("StateReason", {}).get("Code", ""),
                instance.get("StateReason", {}).get("Message", "") or instance.get("StateTransitionReason", ""),
            )
            for reservation in listed
            for instance in reservation.get("Instances", [])
            if instance.get("State", {}).get("Name") not in LIVE
        }

    def _fact_of(self, arrived: Arrived) -> list[Fact]:
        """The facts in a message; a state change goes into the ledger."""
        word = arrived.word
        match word:
            case SpotWarned():
                if self._warned.get(word.instance) == word.terminates_at:
                    return []
                self._warned[word.instance] = word.terminates_at
                return [word]
            case StateChanged():
                self._transitions.told(word.instance, word.state, word.at)
            case RebalanceAdvised():
                return [word] if word.instance in self._rows or word.instance in self._unlisted else []
            case _:
                assert_never(word)
        return []

    # What is asked.

    def _send_again(self, now: float) -> None:
        """Send what could not be sent, in its order; a lane that still fails waits."""
        unsent, self._unsent = self._unsent, []
        for at, order in unsent:
            if now - at > self._setup.resend_limit_s:
                _log.warning("order %s could not be sent for %.0f s and is dropped", order.token, now - at)
            elif any(_lane(waiting) == _lane(order) for _, waiting in self._unsent):
                self._unsent.append((at, order))
            else:
                self._try(order, at)

    def _try(self, order: Order, asked_at: float) -> None:
        try:
            self._send(order)
        except RetryLater as error:
            _log.warning("order %s is sent again later: %s", order.token, error)
            self._unsent.append((asked_at, order))

    def _send(self, order: Order) -> None:
        match order:
            case Launch():
                self._launch(order)
            case Drain():
                self._drain(order.instances)
            case Terminate():
                self._terminate(order.instances)
            case StartStandby():
                self._start(order)
            case StopStandby():
                self._stop_standbys(order.instances)
            case WarmLambda():
                self._warm_up(order.concurrency)
            case Withdraw():
                self._withdraw(order)
            case _:
                assert_never(order)

    def _launch(self, order: Launch) -> None:
        """Ask for as many as guardrails let; the rest is refused."""
        now = self._clock.now()
        forbidden = self._guard.forbidden_reason(order.offering)
        if forbidden is not None:
            _log.error("launch %s of %d %s is not sent: %s", order.token, order.count, order.offering, forbidden)
            self._facts.append(refused(order, RefusalCause.FORBIDDEN, now, detail=forbidden))
            return
        allowed = tuple(name for name in order.equivalents if self._guard.forbidden_reason(name) is None)
        order = replace(order, equivalents=allowed)
        count, why = self._guard.reserve(self._setup.model, order)
        if why is not None and order.equivalents:  # the dearest of them counted: less may fit
            order = replace(order, equivalents=())
            count, why = self._guard.reserve(self._setup.model, order)
        try:
            if count > 0:
                self._ask_fleet(replace(order, count=count), now)
        finally:
            self._guard.release(self._setup.model, order)
        if why is not None:
            lacking = order.count - count
            _log.error("%d %s of launch %s are not sent: %s", lacking, order.offering, order.token, why)
            self._facts.append(refused(order, RefusalCause.GUARDRAIL, now, detail=why, count=lacking))

    def _ask_fleet(self, order: Launch, now: float) -> None:
        try:
            with translated():
                reply = self._ec2.create_fleet(**fleet_request(self._setup, order))
        except (NoCapacity, Misconfigured) as error:
            code = code_of(error)
            _log.log(
                logging.ERROR if isinstance(error, Misconfigured) else logging.INFO,
                "launch %s of %d %s is refused: %s; %s",
                order.token,
                order.count,
                order.offering,
                error,
                remedy(code, str(error)),
            )
            self._facts.append(refused(order, cause_of(code), now, code=code))
            return
        except AlreadyDone as error:
            _log.warning("launch %s was made before with other parameters: %s", order.token, error)
            return
        is_empty = not reply.get("Instances") and not reply.get("Errors")
        if is_empty:
            reply = self._earlier_answer(order)
            self._unanswered.append((now, order))
        rows = launched_rows(self._setup, order, reply, now)
        self._unlisted |= rows
        self._unproven |= rows
        self._transitions.launched(rows)
        self._guard.launched(rows)
        self._facts += [] if is_empty else shortfall(self._setup, order, reply, now)
        for mistake in _mistakes(reply):
            _log.error(
                "launch %s of %s cannot succeed as things are set up: %s", order.token, order.offering, mistake
            )

    def _earlier_answer(self, order: Launch) -> CreateFleetResultTypeDef:
        """The answer to an order of which EC2 says nothing: what is listed of an earlier sending of it.

        What that launched a moment ago may not be listed yet: what never came is told later (`_tell_lacking`).

        "The request succeeds without performing any further actions" (EC2 developer guide, idempotency): nothing
        says that it names the instances again.
        """
        found = self._listed(**{TOKEN: order.token, RUN: self._setup.run})
        return {  # type: ignore[typeddict-item]
            "Instances": [
                {"InstanceIds": [name], "InstanceType": row.offering.partition(":")[0]}
                for name, row in sorted(found.items())
            ]
        }

    def _tell_lacking(self, now: float) -> None:
        """Tell what never came of orders of which EC2 said nothing, once it has had the time to list it."""
        due = [order for at, order in self._unanswered if now - at >= self._setup.unlisted_limit_s]
        self._unanswered = [one for one in self._unanswered if one[1] not in due]
        for order in due:
            if (had := self._had(order)) < order.count:
                self._facts += unfilled(self._setup, order, order.count - had, now)

        told = [one for one in self._withdrawn if now - one[0] >= self._setup.unlisted_limit_s]
        self._withdrawn = [one for one in self._withdrawn if one not in told]
        for _, order, count in told:
            lacking = min(count, order.count - self._had(order))
            if lacking > 0:
                fact = LaunchWithdrawn(token=order.token, offering=order.offering, count=lacking, at=now)
                self._facts.append(fact)

    def _had(self, order: Launch) -> int:
        """Instances of an order that are there."""
        return sum(row.token == order.token for row in (self._rows | self._unlisted).values())

    def _withdraw(self, withdraw: Withdraw) -> None:
        """Send so many less of a launch that waits; one that does not was taken, or has been given up.

        An earlier sending may have been heard, whose answer was lost. So what does not come is told when EC2 has
        had the time to list it; and the rest keeps its token, at which EC2 launches nothing twice.
        """
        for place, (at, order) in enumerate(self._unsent):
            if isinstance(order, Launch) and order.token == withdraw.launch:
                left = max(0, order.count - withdraw.count)
                self._unsent[place : place + 1] = [(at, replace(order, count=left))] if left else []
                self._withdrawn.append((self._clock.now(), order, withdraw.count))
                return

    def _drain(self, names: Sequence[str]) -> None:
        """Ask the agents to leave; end at once those that have never served.

        The request is written before the agents are looked at: one that becomes ready in between learns of it
        with the same announcement, so that none is ended with a request in hand.
        """
        self._membership.drain(names)
        self._draining.update(names)
        self._stop_watching(names)
        ready = self._serving()
        self._terminate([name for name in names if name not in ready])

    def _stop_standbys(self, names: Sequence[str]) -> None:
        """Standbys go to sleep: those that serve drain and then stop themselves, the others are stopped."""
        ready = self._serving()
        serving = [name for name in names if name in ready]
        if serving:
            self._membership.drain(serving)
            self._draining.update(serving)
        self._stop([name for name in names if name not in ready])

    def _serving(self) -> Mapping[str, Member]:
        return {member.instance: member for member in self._membership.members() if member.state in SERVES}

    def _terminate(self, names: Sequence[str]) -> None:
        self._end(names, "end", lambda some: self._ec2.terminate_instances(InstanceIds=some))

    def _stop(self, names: Sequence[str]) -> None:
        self._end(names, "stop", lambda some: self._ec2.stop_instances(InstanceIds=some))

    def _end(self, names: Sequence[str], what: str, call: Callable[[list[str]], object]) -> None:
        """End or stop them; what AWS refuses is told once, with what a person can do."""
        self._stop_watching(names)
        refused = call_each(names, call, self._pool)
        self._troubles.update(what, names, refused, self._clock.now())

    def _stop_watching(self, names: Sequence[str]) -> None:
        """Forget that these are unproven: an instance that is told to leave before it is ready did not fail."""
        for name in names:
            self._unproven.pop(name, None)

    def _start(self, order: StartStandby) -> None:
        """Wake standbys, as many as may run; a drain that one of them never heeded is no longer meant.

        The drain is forgotten first: a crash in between would leave them awake and asked to leave.
        """
        now = self._clock.now()
        self._membership.undrain(order.instances)
        self._draining.difference_update(order.instances)
        whys = {name: self._guard.reserve_wake(name) for name in order.instances}
        asleep = {name: why for name, why in whys.items() if why is not None}
        for name, why in asleep.items():
            _log.error("standby %s is not woken (%s): %s", name, order.token, why)
        names = [name for name in whys if name not in asleep]
        lacking = call_each(names, self._wake, self._pool)
        self._guard.release_wakes({name: self._rows[name] for name in lacking if name in self._rows})
        self._facts += wakes_held_back(order, asleep, self._rows, now)
        self._facts += wakes_refused(order, lacking, self._rows, now)
        wrong = {name: error for name, error in lacking.items() if isinstance(error, Misconfigured)}
        self._troubles.update("start", names, wrong, now)

    def _wake(self, names: list[str]) -> None:
        """Start them in one attempt, so that a lack of capacity is known at once; throttled calls are repeated."""
        try:
            with translated():
                self._waking.start_instances(InstanceIds=names)
        except RetryLater:
            self._ec2.start_instances(InstanceIds=names)

    def _pool(self, name: str) -> tuple[str, str]:
        """The type and the zone of an instance: EC2 has room for one, and not for another."""
        row = self._rows.get(name)
        return (row.offering, row.zone) if row else ("", "")

    def _warm_up(self, concurrency: int) -> None:
        """Ping in a thread; not while the pings of an earlier order are under way."""
        if self._warm is None or (self._warming is not None and not self._warming.done()):
            return
        self._warming = self._warmer.submit(self._warm, concurrency)
        self._warming.add_done_callback(_log_failure)


def _mistakes(reply: CreateFleetResultTypeDef) -> tuple[str, ...]:
    """Errors that no waiting mends (a permission, a template), each once: EC2 Fleet reports them with HTTP 200."""
    told = {(error.get("ErrorCode", ""), error.get("ErrorMessage", "")) for error in reply.get("Errors", [])}
    return tuple(
        f"{code}: {message}; {remedy(code, message)}"
        for code, message in sorted(told)
        if code and family_of(code) is Misconfigured
    )


def _lane(order: Order) -> bool:
    """Launches wait only for launches, all others only for one another: EC2 throttles each call by itself."""
    return isinstance(order, Launch)


def _log_failure(warming: Future[object]) -> None:
    if not warming.cancelled() and warming.exception() is not None:
        _log.warning("warming up Lambda failed: %s", warming.exception())
