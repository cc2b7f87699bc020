"""Python's own way in: what `import mark` offers, each on the same road as the command of that name.

Errors that the user can do something about are MarkError, of which Misconfigured says in one line what to change.
"""

from mark.api.calls import advise, bound, forecast, plan, read_trace, simulate
from mark.api.model import Model
from mark.api.runs import Runs, ServiceRuns
from mark.api.service import Service
from mark.domain.errors import MarkError, Misconfigured
from mark.simulator.traces.trace import Trace

__all__ = [
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
]
