"""The report by mail: EventBridge Scheduler calls the report function, which mails through SES."""

from __future__ import annotations

from constructs import Construct

from mark.aws.names import REPORT
from mark.infra.blueprint import Blueprint
from mark.infra.schedules import make_schedule
from mark.infra.stack import ServiceStack


class ReportsStack(ServiceStack):
    """The schedule, and the role that it calls the function with."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "reports", blueprint=blueprint, about="its report by mail")
        schedule = blueprint.resources.schedule(REPORT)
        make_schedule(self, "Schedule", schedule, self.imported("report-arn"), role="schedule")
