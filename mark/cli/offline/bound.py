"""`mark bound`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from mark.cli import options as given

EXAMPLES = (
    "mark bound --trace load.csv.gz --model inception-v3",
    "mark bound --trace load.csv.gz --model inception-v3 --market spot --json",
)


def bound(
    *,
    trace: given.Trace = None,
    where: given.Where = None,
    rows: given.Rows = None,
    time: given.Time = None,
    value: given.Value = None,
    tz: given.Tz = None,
    dates: given.Dates = None,
    bursts: given.Bursts = None,
    model_from: given.ModelFrom = None,
    model: given.Model = None,
    market: given.Market = None,
    slo_ms: given.SloMs = None,
    slo_target: given.SloTarget = None,
    mean_rps: given.MeanRps = None,
    start_s: given.StartS = None,
    duration_s: given.DurationS = None,
    sizes: given.Sizes = None,
    seed: given.Seed = None,
    types: given.Types = None,
    world: given.World = None,
    profiles: given.Profiles = None,
    models: given.Models = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Compute the least cost that perfect knowledge could reach.

    The reference serves every request in time, with the whole trace known in advance, without queueing and
    without standbys. The floor serves only the share that the objective asks for, with any standby and, where
    the market is spot, on demand too; no run that keeps the objective costs less. Both leave out the overhead:
    what stands around the fleet.

    Where --config serves several models and no --model is named, the floor is the whole service's: no run in which
    every model keeps its objective costs less, whoever shares an instance with whom. Rivals with pods or copies on
    parts of instances can: what those take is not measured.
    """
    settings = given.settings_of(locals())
    from mark.config.served import is_service

    if model_from is not None or is_service(settings):
        from mark.offline.bound_service import bound_service
        from mark.offline.model_loads import chosen_loads

        bound_service(settings, as_json=json, load_of=chosen_loads(settings, model_from))
        return
    from mark.config.served import settings_alone
    from mark.offline.bound import bound_settings

    bound_settings(settings_alone(settings), as_json=json)
