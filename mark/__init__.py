"""MArk: serve machine-learning models within a latency objective at the least cost."""

from importlib import import_module

_OF_API = (
    "MarkError",
    "Misconfigured",
    "Model",
    "Runs",
    "Service",
    "ServiceRuns",
    "Trace",
    "advise",
    "bound",
    "forecast",
    "plan",
    "read_trace",
    "simulate",
)
__all__ = ["__version__", *_OF_API]  # noqa: PLE0604 - they are texts


def __getattr__(name: str) -> object:
    # agents and commands import this, too: what replays need is imported when it is asked for
    if name == "__version__":  # of git's tags, when it was installed
        metadata = import_module("importlib.metadata")
        try:
            return metadata.version("mark-serving")
        except metadata.PackageNotFoundError:  # its source alone is on the path
            return "0+unknown"
    if name not in _OF_API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module("mark.api"), name)
    except ModuleNotFoundError as error:
        missing_extra = import_module("mark.extras").missing_extra
        raise missing_extra(f"mark.{name}", error) or error from None
