"""`mark init` and `mark predict`, a model of one's own: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given
from mark.extras import has_extra

INIT_EXAMPLES = (
    "mark init",
    "mark init --out service/mark.yaml",
    "mark init my.py:Model --slo-ms 200 --slo-target 0.99 --out mine",
    "mark init my.py:predict --data '[[1.5, 2.0]]' --out priced",
    "mark init churn.joblib --out churn",
    "mark init sentiment.onnx --slo-ms 50 --out sentiment",
    "mark init models/ --seconds 2",
    "mark init policy",
    "mark init dispatch",
)
PREDICT_EXAMPLES = (
    "mark predict --model digits",
    "mark predict --target my.py:Model --data '[[1, 2, 3, 4]]'",
    "mark predict --config mine/mark.yaml --input example.npy --json",
)


def init(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="Your model: path/file.py:Name, module:Name, a file .onnx, .joblib or .pkl, or a folder; or "
            "the word policy or dispatch.  [default: none]",
        ),
    ] = None,
    *,
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--to",
            metavar="PATH",
            help="Folder to write to; without TARGET also a file .yaml.  "
            "[default: the target's folder, else this one]",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With TARGET: the model's name.  [default: the class's]"),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="An example of the model's input, its batch first: measured with it, and a function's types are "
            "told by it.  [default: zeros]",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", help="The example in a .json, .npy or .npz file.  [default: zeros]"
        ),
    ] = None,
    slo_ms: given.SloMs = None,
    slo_target: given.SloTarget = None,
    memory_gib: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="Memory that the model needs.  [default: as measured]"),
    ] = None,
    rps: Annotated[
        float | None,
        typer.Option(
            metavar="RPS", help="Load to expect at first, requests/s.  [default: the mean of --trace, else 10]"
        ),
    ] = None,
    trace: given.Trace = None,
    where: given.Where = None,
    rows: given.Rows = None,
    time: given.Time = None,
    value: given.Value = None,
    tz: given.Tz = None,
    dates: given.Dates = None,
    seconds: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="With TARGET: time limit of measuring; 0: do not measure."),
    ] = 5.0,
    no_load: Annotated[
        bool,
        typer.Option(
            "--no-load",
            help="Do not make the model, which may need a GPU that this machine lacks: with --slo-ms and "
            "--memory-gib, a latency on g4dn.xlarge is assumed.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Take the defaults without asking.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    config: given.Config = None,
) -> None:
    """Write a mark.yaml, or with TARGET a model's whole folder.

    TARGET is a class with inputs, outputs and predict. Or it is something around which it writes such a class: a
    function (file.py:predict), an ONNX model, or a scikit-learn model saved by joblib or pickle; loading these two
    runs code that is in the file, so name only files that you trust.

    A folder gives one mark.yaml with all its models: each .onnx, .joblib and .pkl file, and each .py file with
    such a class or a function predict. What does not work is left out, and the exit status is 1.

    The word policy gives a policy of your own to start from, for `mark simulate --policy policy.py:HPA`; the word
    dispatch a dispatch rule.

    It loads the model, calls it, measures it here, and writes model.json, profile.json and mark.yaml. On a
    terminal it asks for the objective; elsewhere flags and defaults count.
    """
    read = {"trace": trace, "where": where, "rows": rows, "time": time, "value": value, "tz": tz, "dates": dates}
    settings = given.settings_of({"config": config, **read})
    from mark.offline.own_model.init import TEMPLATES, write_config, write_template

    if target is None:
        write_config(to, force=force)
        return
    if target in TEMPLATES and not Path(target).exists():
        write_template(target, to, force=force)
        return
    from mark.offline.own_model.init_from_folder import write_models
    from mark.offline.own_model.init_from_target import InitOptions, write_model
    from mark.offline.own_model.own_packages import with_packages_of_target

    with_packages_of_target(target)
    options = InitOptions(
        target=target,
        out=to,
        model=model,
        latency_ms=slo_ms,
        share=slo_target,
        memory_gib=memory_gib,
        rps=rps,
        settings=settings,
        seconds=0.0 if no_load else seconds,
        load=not no_load,
        ask=not yes,
        force=force,
        data=data,
        file=file,
    )
    written, is_whole = write_models(options) if Path(target).is_dir() else (write_model(options), True)
    if (seconds > 0 or no_load) and has_extra("replay"):  # it plans
        from mark.live.local.first_price import show_first_price

        show_first_price(given.settings_of({"config": written}))
    if not is_whole:
        raise typer.Exit(1)


def predict(
    *,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Model's path/file.py:Name or module:attribute.  [default: the backend of --model]",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A model of the settings, or a shipped one with weights.  "
            "[default: the only one of the settings]",
            autocompletion=complete.models,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Input: a .json, .csv, .npy or .npz file.  [default: zeros]"),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Input: values, an object of values by name, or a request's body.  [default: zeros]",
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option(metavar="NUMBER", help="Batch size of the example where no input is given.")
    ] = 1,
    random: Annotated[bool, typer.Option("--random", help="Draw the example at random instead of zeros.")] = False,
    seed: given.Seed = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Call a model once, without a service.

    Prints its outputs, how long a call takes, and where outputs differ from what the model declares.
    """
    settings = given.settings_of({"config": config})
    from mark.offline.own_model.predict import PredictOptions, predict_once

    options = PredictOptions(
        model=model, target=target, file=file, data=data, rows=rows, random=random, seed=seed or 0
    )
    predict_once(settings, options, as_json=json)
