"""`mark up`, `load`, `status`, `logs`, `interrupt`, `chaos`, `pause`, `down`, `profile`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given
from mark.config.short_names import split_list

UP_EXAMPLES = ("mark up", "mark up --detach --json", "mark up --config mark.yaml --detach")
LOAD_EXAMPLES = (
    "mark load --rate 50 --duration 60",
    "mark load --trace load.csv.gz --speed 20 --duration 3600 --json",
)
TRY_EXAMPLES = ("mark try", "mark try --model digits --json", "mark try --config mark.yaml")
ALERTS_TEST_EXAMPLES = ("mark alerts test", "mark alerts test --config mark.yaml")
STATUS_EXAMPLES = (
    "mark status",
    "mark status --model digits --watch",
    "mark status --json",
    "mark status --aws",
)
LOGS_EXAMPLES = ("mark logs digits --follow", "mark logs --lines 20")
INTERRUPT_EXAMPLES = ("mark interrupt --share 0.4",)
CHAOS_EXAMPLES = (
    "mark chaos kill agent",
    "mark chaos kill aws",
    "mark chaos throttle --seconds 30",
    "mark chaos refuse --offering c5.large:spot --seconds 60",
    "mark chaos clear",
)
PAUSE_EXAMPLES = ("mark pause", "mark pause --off", "mark pause --aws", "mark pause --aws --off")
DOWN_EXAMPLES = ("mark down", "mark down --name other")
PROFILE_EXAMPLES = (
    "mark profile --target my.py:Model --model mine --as c5.large --out profile.json",
    "mark profile --config mine/mark.yaml --out mine/profile.json",
    "mark profile --on c5.large,g4dn.xlarge,lambda --max-usd 3 --out profile.json",
    "mark profile --kind oip --target http://127.0.0.1:8000 --model mine --as g4dn.xlarge --body request.json",
)


def up(
    *,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once the service answers, and leave it running.")
    ] = False,
    ask_above: given.AskAbove = None,
    yes: given.Yes = False,
    hold: Annotated[bool, typer.Option("--hold", help="Stop the service's clock until a load comes.")] = False,
    world: given.World = None,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Start the service on this machine, with an emulated AWS.

    It has gateways, agents, a controller and a Redis of its own. Without --config it serves inception-v3 on
    spot, emulated by its published latencies, and the digits classifier in torch. Without --detach it shows the
    fleet until Ctrl-C, which ends it.
    """
    settings = given.settings_of(locals(), "ask_above", "name", "world")
    from mark.live.commands.up import bring_up

    bring_up(settings, detach=detach, as_json=json, hold=hold, yes=yes)


def load(
    *,
    trace: given.Trace = None,
    where: given.Where = None,
    rows: given.Rows = None,
    time: given.Time = None,
    value: given.Value = None,
    tz: given.Tz = None,
    dates: given.Dates = None,
    bursts: given.Bursts = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="RPS", help="Constant rate with Poisson arrivals, instead of a trace.  [default: the trace's]"
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long, on the trace's clock.  [default: to the trace's end]"),
    ] = None,
    speed: Annotated[
        float, typer.Option(metavar="X", help="Move through the trace X times as fast, at the trace's rates.")
    ] = 1.0,
    start_s: given.StartS = None,
    mean_rps: given.MeanRps = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC", help="Sizes of requests in items, as mark simulate takes them.  [default: one each]"
        ),
    ] = None,
    model: given.ServedModel = None,
    seed: given.Seed = None,
    key_file: given.KeyFile = None,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Send requests to the service, at a rate or after a trace.

    It is an open loop: latency counts from the instant at which a request was due. After a connection reset a
    request is retried once with the same request id. With --speed the control loop, boots, notices, billing and
    forecasts follow a clock that runs X times as fast; service times and the objective stay real. The exit status
    is 1 when no request was answered.
    """
    settings = given.settings_of(locals(), "where", "rows", "time", "value", "tz", "dates", "bursts")
    from mark.catalog.latency_tables import load_sizes
    from mark.live.commands.load import LoadOptions, load_service
    from mark.offline.trace_source import TraceReading

    options = LoadOptions(
        service=_service(config, name),
        model=model,
        trace=trace,
        rate_rps=rate,
        mean_rps=mean_rps,
        start_s=start_s or 0.0,
        duration_s=duration,
        speed=speed,
        seed=seed or 0,
        sizes=load_sizes(sizes) if sizes else None,
        reading=TraceReading.of(settings),
        key_file=key_file,
    )
    load_service(options, as_json=json)


def try_(
    *,
    model: given.ServedModel = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Address in the service's network, where it is another.  [default: the service's own]",
        ),
    ] = None,
    key_file: given.KeyFile = None,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Send one request, and say who answered it and how fast.

    The request is the model's example, zeros. A service on this machine is asked directly; one in an AWS account
    by its function `probe` (rollout.functions.probe, which --trial sets), since its address is internal. The exit
    status is 1 when no model answered.
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.try_service import try_service

    try_service(settings, model=model, address=address, key_file=key_file, as_json=json)


def alerts_test(*, name: given.Name = None, json: given.Json = False, config: given.Config = None) -> None:
    """Post one message to the webhook of alarms, and say what came of it.

    The function that posts the alarms of a service in an AWS account posts it (rollout.alarms.webhook).
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.alerts import try_webhook

    try_webhook(settings, as_json=json)


def status(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Show this model in full.  [default: the most expensive]",
            autocompletion=complete.models,
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh each second until Ctrl-C.")] = False,
    aws: Annotated[
        bool,
        typer.Option(
            "--aws", help="List instead the instances in AWS that bear the service's tag, and their price."
        ),
    ] = False,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Show the service: a table of its models, and one model in full.

    The table has load, share in time, cost and state of each model, the most expensive first, and the overhead
    that they share below it. A model in full has its fleet as planned, requested and observed, and its last
    decisions. --json has all of every model. With `mode: observe` it says what you run, what MArk would run, what
    that would have saved so far, and its risk.
    """
    if aws:
        from mark.live.status.aws_inventory import show_standing

        show_standing(given.settings_of(locals(), "name"), as_json=json)
        return
    from mark.live.status.watch import show_status

    show_status(_service(config, name), model=model, watch=watch, as_json=json)


def logs(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="Only what this model and its instances logged.  [default: all processes]",
            autocompletion=complete.models,
        ),
    ] = None,
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", metavar="COUNT", help="The last lines.", min=1)] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print what comes, until Ctrl-C.")] = False,
    name: given.Name = None,
    config: given.Config = None,
) -> None:
    """Show what the service's processes logged, or one model's.

    A model's lines are those of its instances, of its process on each shared instance, and the controllers' about
    it. They stay when the service or an instance has ended.
    """
    from mark.live.commands.logs import show_logs

    show_logs(_service(config, name), model=model, lines=lines, follow=follow)


def interrupt(
    *,
    share: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the ready spot instances, above 0, at most 1.")
    ],
    offering: Annotated[
        str, typer.Option(metavar="OFFERING", help="Only of this one, such as c5.large:spot.  [default: any]")
    ] = "",
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Interrupt spot instances of the emulated AWS, with notice."""
    from mark.live.commands.chaos import interrupt_spot

    interrupt_spot(_service(config, name), share=share, offering=offering, as_json=json)


def chaos(
    *,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Fault: kill, throttle, refuse, partial, slow or clear.",
            autocompletion=complete.choices("kill", "throttle", "refuse", "partial", "slow", "clear"),
        ),
    ],
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="For kill: agent, gateway, controller, store or aws.  [default: none]",
            autocompletion=complete.choices("agent", "gateway", "controller", "store", "aws"),
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="How long a fault of AWS lasts.")] = 30.0,
    offering: Annotated[
        str, typer.Option(metavar="OFFERING", help="Only for this offering.  [default: any]")
    ] = "",
    share: Annotated[
        float, typer.Option(metavar="SHARE", help="For partial: share of each launch that succeeds.")
    ] = 0.5,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Kill a process of the service, or inject a fault of AWS.

    kill: kill -9; throttle: calls fail with RequestLimitExceeded; refuse: no capacity; partial: only a share of
    each launch succeeds; slow: EC2 calls take seconds; clear: end all faults.
    """
    from mark.live.commands.chaos import break_something

    service = _service(config, name)
    break_something(service, what, target, seconds=seconds, offering=offering, share=share, as_json=json)


def pause(
    *,
    off: Annotated[bool, typer.Option("--off", help="Resume: rent again what is needed.")] = False,
    aws: Annotated[
        bool, typer.Option("--aws", help="Pause from anywhere, by credentials alone; with --off, end that pause.")
    ] = False,
    within: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="With --aws: time for controllers before this command acts.  [default: 90]"
        ),
    ] = None,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Stop spending, and keep the service's state.

    Instances drain and terminate, and Lambda is not called. Requests get 503 until `mark pause --off`.
    Controllers, gateways and the store stay. The exit status is 1 when no controller confirms, or instances do
    not end in time.

    With --aws it needs neither the store nor a controller: it writes a parameter that controllers poll each 20 s,
    which stands until `mark pause --aws --off`. Instances of the fleet that no controller ends in time it
    terminates itself, by their tags.
    """
    settings = given.settings_of(locals(), "name")
    if aws:
        from mark.live.commands.outside_pause import pause_outside

        pause_outside(settings, on=not off, within_s=within, as_json=json)
        return
    from mark.live.commands.pause import pause as pause_service

    pause_service(settings, on=not off, as_json=json)


def down(*, name: given.Name = None, config: given.Config = None) -> None:
    """End the service; logs and clients stay, announced events go."""
    from mark.live.commands.down import bring_down

    bring_down(_service(config, name))


def profile(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Model's name in the profile; with --on, a model of the service.  "
            "[default: the only one of the settings]",
            autocompletion=complete.models,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Model's module:attribute, path/file.py:Name or URL.  [default: the backend of --model]",
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Backend: python, oip, tf-serving or invocations.",
            autocompletion=complete.choices("python", "oip", "tf-serving", "invocations"),
        ),
    ] = "python",
    as_type: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="TYPE",
            help="I"
            "nstance type that this machine stands for, or lambda. On another machine than that type the profile "
            "is a stand-in.  [default: this EC2 instance's type, elsewhere c5.large]",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE,...", help="Rent these types, or lambda, and measure there.  [default: measure here]"
        ),
    ] = None,
    max_usd: Annotated[float, typer.Option(metavar="USD", help="With --on: spending limit.")] = 1.0,
    yes: Annotated[bool, typer.Option("--yes", help="With --on: rent without asking.")] = False,
    batches: Annotated[
        str | None,
        typer.Option(metavar="SIZE,...", help="Batch sizes.  [default: 1,2,4,8,16,32; 1 for lambda]"),
    ] = None,
    parallelism: Annotated[
        str | None,
        typer.Option(
            metavar="RxT,...",
            help="Replicas x threads of a Python model to measure; the fastest is written.  "
            "[default: 1x1, one replica with all processors, one replica a processor, and one between]",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Time limit of measuring, each type.")] = 20.0,
    body: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Body of a request.  [default: zeros of the model's inputs]"),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--out", "--to", metavar="FILE", help="Profile file to write, or to add to.  [default: printed only]"
        ),
    ] = None,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Measure a model's latency by batch size, here or on AWS.

    The result is a profile that plans can use. The model is --target's, or one that --config serves, or a
    shipped one by --model. A profile that was measured on another machine than its type is a stand-in, and every
    report says so.

    With --on it first says what that will cost, and asks. It rents one type at a time, measures over HTTP
    through the agent, terminates the instance whatever happens, and stops before --max-usd.
    """
    settings = given.settings_of(locals(), "name")
    sizes = None if batches is None else tuple(round(size) for size in given.number_list("--batches", batches))
    if on is not None:
        if parallelism is not None:
            from mark.domain.errors import Misconfigured

            raise Misconfigured(
                "--parallelism is measured on this machine: leave it out, or run this on --on's type"
            )
        from mark.deployment.profile_on.options import ProfileOnOptions
        from mark.deployment.profile_on.run import profile_on

        rented = ProfileOnOptions(
            types=tuple(dict.fromkeys(split_list(on))),
            model=model,
            max_usd=max_usd,
            batches=sizes,
            seconds=seconds,
            body=body,
            to=to,
            yes=yes,
        )
        profile_on(settings, rented, as_json=json)
        return
    from mark.catalog.load import known_models
    from mark.domain.models.profile import parse_parallelism
    from mark.offline.own_model.own_packages import with_packages_of
    from mark.offline.own_model.profile import ProfileOptions, profile_backend
    from mark.offline.own_model.targets import tried_model

    tried = tried_model(settings, model=model, target=target, kind=kind)
    with_packages_of(tried)
    options = ProfileOptions(
        model=tried.name,
        target=tried.target,
        folder=tried.folder,
        kind=tried.kind,
        instance_type=as_type,
        batches=sizes,
        seconds=seconds,
        body=body,
        to=to,
        named=tuple(map(Path, settings.profiles)),
        streams=tried.streams,
        parallelisms=None if parallelism is None else tuple(map(parse_parallelism, split_list(parallelism))),
        spec=known_models(settings.models).get(tried.name),
    )
    profile_backend(options, as_json=json)


def _service(config: Path | None, name: str | None) -> str:
    """The service that is meant: the flag's, the file's, or the usual one."""
    return given.settings_of(locals(), "name").service.name
