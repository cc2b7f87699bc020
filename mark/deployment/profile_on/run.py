"""`mark profile --on`: rents one instance of each type, measures the service's own model on it over HTTP, ends it.

The agent on the instance is the service's own, by itself (`live/standalone_agent.py`). Each measured type is
written to the profile file at once: what ends the command later takes nothing back. Money is looked at before each
type, and after each round of batches while one is measured.
"""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType

from mark.aws.ec2.rent_instance import Rent, end_all, look_at, rent
from mark.aws.resources import launch_templates
from mark.aws.session import Aws
from mark.catalog.load import PriceSnapshot
from mark.catalog.machines import unlaunchable_reason
from mark.catalog.schema import LAMBDA
from mark.config.policies import chosen_world
from mark.config.prices import chosen_prices
from mark.config.served import as_rolled_out
from mark.config.settings import Settings
from mark.deployment.profile_on.cost import LAMBDA_CALLS_PER_S, SECONDS_PER_HOUR, Meter, Price
from mark.deployment.profile_on.on_lambda import LambdaBackend
from mark.deployment.profile_on.options import ProfileOnOptions
from mark.deployment.profile_on.show import confirm, format_usd, show_result
from mark.domain.errors import MarkError, Misconfigured, NoCapacity, RetryLater, unknown
from mark.domain.fleet.instances import Role
from mark.domain.models.profile import Profile
from mark.live.local.gateway_client import answers
from mark.live.models import LiveModel, make_live_models
from mark.live.service_session import service_aws
from mark.live.standalone_agent import LARGEST
from mark.offline.own_model.profile import USUAL_BATCHES, others_of, request_for, write_profiles
from mark.ports import Backend
from mark.report.terminal import Report, note, progress
from mark.serving.backends.oip_server import OipBackend
from mark.serving.profiling import MeasuredPoint, measure, profile_of

HTTP_PORT = 8000
"""The agent's."""
READY_S, POLL_S = 900.0, 1.0
"""Time that an instance has to boot and to load the model."""
LONGEST_S = 3600.0
"""No instance is rented for longer, whatever the limit allows."""
ANSWERS_S = 60.0
"""Time that the agent, which was ready, may take to say so again."""


@dataclass(slots=True)
class Outcome:
    """Outcome by type: points where it was measured, else why not."""

    points: dict[str, tuple[MeasuredPoint, ...]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def profile_on(settings: Settings, options: ProfileOnOptions, *, as_json: bool) -> None:
    """Estimate, ask, rent, measure, write, and end what was rented."""
    if not (options.seconds > 0 and options.max_usd > 0):
        raise Misconfigured(
            f"--seconds and --max-usd must be above 0, not {options.seconds:g} and {options.max_usd:g}"
        )
    if not options.types:
        raise Misconfigured("name types to rent, such as --on c5.large,lambda")
    if options.batches is not None and not all(1 <= size <= LARGEST for size in options.batches):
        raise Misconfigured(f"--batches must be from 1 to {LARGEST}, not {', '.join(map(str, options.batches))}")
    model = _model(settings, options)
    _check_launchable(settings, options.types)
    prices = [_price(name, model, chosen_prices(settings)) for name in options.types]
    estimate_usd = sum(price.estimate_usd(options.seconds) for price in prices)
    if estimate_usd > options.max_usd:
        raise Misconfigured(
            f"this would cost about {estimate_usd:.2f} USD, more than --max-usd {options.max_usd:g}: "
            "name fewer types, or a higher limit"
        )
    if not options.yes:
        confirm(prices, options.seconds, estimate_usd)
    meter = Meter(options.max_usd)
    aws = service_aws(settings, "profiler")
    try:
        with _terminated_as_interrupted(), progress() as report:
            outcome = _Rounds(settings, options, model, aws, meter, report).run(prices)
    finally:
        aws.close()
    show_result(model.name, options, outcome.points, outcome.skipped, meter, as_json=as_json)


class _Rounds:
    """One type after another."""

    def __init__(
        self,
        settings: Settings,
        options: ProfileOnOptions,
        model: LiveModel,
        aws: Aws,
        meter: Meter,
        report: Report,
    ) -> None:
        self._settings, self._options, self._model = settings, options, model
        self._aws, self._meter, self._report = aws, meter, report
        self._run = f"profile-{uuid.uuid4().hex}"
        self._outcome = Outcome()

    def run(self, prices: Sequence[Price]) -> Outcome:
        """Measure each type that the limit affords; one that cannot be had is left out."""
        kept = others_of(self._options.to, self._model.name, self._options.types)
        for price in prices:
            if not self._meter.affords(price, self._options.seconds):
                self._outcome.skipped[price.name] = "the limit would be exceeded"
                continue
            try:
                points = self._on_lambda(price) if price.name == LAMBDA else self._on_instance(price)
            except (NoCapacity, RetryLater) as error:
                self._outcome.skipped[price.name] = str(error)
                continue
            self._outcome.points[price.name] = points
            kept = (*kept, self._profile(price.name, points))
            if self._options.to is not None:
                write_profiles(self._options.to, kept)
        return self._outcome

    def _on_instance(self, price: Price) -> tuple[MeasuredPoint, ...]:
        now = time.time()
        allowed_s = min(self._meter.lasts_s(price), LONGEST_S)
        service, rollout = self._settings.service.name, self._settings.rollout
        kind = chosen_prices(self._settings).instance_type(price.name)
        wanted = Rent(
            service=service,
            owner=rollout.owner,
            own_tags=rollout.tags,
            model=self._model.name,
            run=self._run,
            instance_type=kind,
            template=launch_templates(service, rollout)[Role.SERVING, kind.machine].name,
            expires_at=now + allowed_s,
        )
        self._report_step(price, "launching", 0.0)
        known: list[str] = []
        self._meter.start(price, now)
        try:
            known.append(rent(self._aws, wanted, now))
            url = self._reachable(known[0], price, now + allowed_s)
            backend = OipBackend(url, name=self._model.name, ready_within_s=ANSWERS_S)
            return asyncio.run(self._measured(backend, price, self._options.batches or USUAL_BATCHES))
        finally:
            self._end(known, price)

    def _on_lambda(self, price: Price) -> tuple[MeasuredPoint, ...]:
        self._meter.start(price, time.time())
        try:
            served = self._model.served
            backend = LambdaBackend(self._aws, served.function, served.inputs)
            return asyncio.run(self._measured(backend, price, (1,)))
        finally:
            self._meter.stop(time.time())

    async def _measured(self, backend: Backend, price: Price, sizes: Sequence[int]) -> tuple[MeasuredPoint, ...]:
        await backend.start()
        try:
            path = f"/v2/models/{self._model.name}/infer"
            request = request_for(self._options.body, path, getattr(backend, "inputs", ()))
            return await measure(
                backend,
                lambda: request,
                sizes,
                seconds=self._options.seconds,
                progress=lambda share, _points: self._watch(price, share),
                every_size=self._options.batches is not None,
            )
        finally:
            await backend.close()

    def _reachable(self, name: str, price: Price, until: float) -> str:
        """The agent's URL, once its model is ready and it can be reached from here."""
        until = min(until, time.time() + READY_S)
        while time.time() < until:
            for item in look_at(self._aws, self._run):
                for host in item.hosts if item.id == name and item.state == "running" else ():
                    url = f"http://{host}:{HTTP_PORT}"
                    if answers(f"{url}/v2/models/{self._model.name}/ready", None):
                        return url
            self._watch(price, 0.0, "booting")
            time.sleep(POLL_S)
        raise RetryLater(
            f"no model is ready on port {HTTP_PORT} of {name}: run this where the instances' network is, and look "
            "at its system log"
        )

    def _watch(self, price: Price, share: float, doing: str = "measuring") -> None:
        """Show the running total; RetryLater where the limit is reached."""
        self._report_step(price, doing, share)
        if self._meter.spent_usd(time.time()) >= self._meter.max_usd:
            raise RetryLater(f"stopped at the limit of {self._meter.max_usd:g} USD")

    def _report_step(self, price: Price, doing: str, share: float) -> None:
        spent = format_usd(self._meter.spent_usd(time.time()))
        self._report(f"{price.name}: {doing}; {spent} of {self._meter.max_usd:g} USD", share)

    def _end(self, known: Sequence[str], price: Price) -> None:
        """End what was rented, also what a lost answer did not tell of; what cannot be ended now is named."""
        try:
            end_all(self._aws, self._run, known)
        except MarkError as error:
            names = ", ".join(known) or "an instance"
            note(f"{price.name}: {names} could not be ended ({error}); it ends by itself")
        finally:
            self._meter.stop(time.time())

    def _profile(self, name: str, points: tuple[MeasuredPoint, ...]) -> Profile:
        where = "Lambda" if name == LAMBDA else f"EC2 {name}"
        return profile_of(
            points,
            model=self._model.name,
            instance_type=name,
            machine=f"{where} in {self._aws.settings.region}, over HTTP",
            date=datetime.now(UTC).date().isoformat(),
        )


def _model(settings: Settings, options: ProfileOnOptions) -> LiveModel:
    """The model that is measured: one that the service serves, by what really runs it."""
    models = {model.name: model for model in make_live_models(settings)}
    real = [name for name, model in models.items() if model.served.backend.kind != "emulated"]
    name = options.model or next(iter(real), next(iter(models)))
    if name not in models:
        raise unknown("model", name, models)
    if models[name].served.backend.kind == "emulated":
        raise Misconfigured(
            f"{name} is emulated: it takes what its profile states, so there is nothing to measure; give it a "
            "backend (service.serve[].backend), or name another with --model"
        )
    return models[name]


def _check_launchable(settings: Settings, types: Sequence[str]) -> None:
    """Misconfigured where the service has no launch template for a type."""
    prices, kinds = chosen_prices(settings), chosen_world(as_rolled_out(settings)).machines
    for name in types:
        if name != LAMBDA and (reason := unlaunchable_reason(prices.instance_type(name), kinds)):
            raise Misconfigured(f"{name} cannot be rented: {reason}")


def _price(name: str, model: LiveModel, prices: PriceSnapshot) -> Price:
    if name != LAMBDA:
        return Price(name=name, usd_per_hour=prices.instance_type(name).on_demand_usd_per_hour)
    overflow = model.served.overflow
    if overflow is None:
        raise Misconfigured(f"{model.name} does not run on Lambda: leave lambda out of --on")
    busy = overflow.memory_gib * overflow.usd_per_gib_s + LAMBDA_CALLS_PER_S * overflow.usd_per_request
    return Price(name=name, usd_per_hour=busy * SECONDS_PER_HOUR, boots=False)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """A SIGTERM ends the command as Ctrl-C does: by its finally's."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before: Callable[[int, FrameType | None], object] | int | None = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
