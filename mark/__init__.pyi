from mark.api import MarkError as MarkError
from mark.api import Misconfigured as Misconfigured
from mark.api import Model as Model
from mark.api import Runs as Runs
from mark.api import Service as Service
from mark.api import ServiceRuns as ServiceRuns
from mark.api import Trace as Trace
from mark.api import advise as advise
from mark.api import bound as bound
from mark.api import forecast as forecast
from mark.api import plan as plan
from mark.api import read_trace as read_trace
from mark.api import simulate as simulate

__version__: str
