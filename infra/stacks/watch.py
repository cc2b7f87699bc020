"""Monitoring: alarms by mail and to a webhook, a budget of AWS's own, and a dashboard.

Controllers write the metrics of a model each minute (namespace MArk, dimensions service and model): BurnRate (1 is
a budget that lasts exactly), UsdPerHour, OverflowShare, Gateways (the live ones). By service alone they write
UsdPerHour of all models, and FailedTrainings while there are any. Missing data of Gateways is a silent controller.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import Aws, aws_budgets, aws_cloudwatch, aws_lambda, aws_sns
from constructs import Construct

from mark.aws.ec2.tags import SERVICE
from mark.aws.names import ORPHANS, REPORT, TOPIC, TRAIN, UNPOSTED_QUEUE
from mark.aws.resources import MINUTE_S, AlarmSpec, alarm_about
from mark.infra.blueprint import Blueprint
from mark.infra.stack import ServiceStack, compact, document, excuse
from mark.infra.stacks.state import store_id
from mark.live.background.cloudwatch import BURN, FAILED_TRAININGS, GATEWAYS, NAMESPACE, OVERFLOW, SPEND
from mark.live.background.node_health import CERTIFICATE, STORE_MEMORY
from mark.protocols.alert_messages import UNPOSTED

FAST_BURN = 14.4
"""2 % of a month's budget in an hour (Google's SRE workbook, chapter 5)."""
CERTIFICATE_DAYS = 21
SILENT_MIN, BURN_MIN, SPEND_MIN, OVERFLOW_MIN, FULL_MIN = 3, 5, 5, 10, 5
SPENT_PERCENT = {"ACTUAL": 80, "FORECASTED": 100}
"""Of the month's budget: so much is spent, or so much will be by AWS's forecast."""
FULL_PERCENT = 80
"""Of the store's memory; copies hold the same, so its first node speaks for all."""


class WatchStack(ServiceStack):
    """Topic, alarms and dashboard."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "watch", blueprint=blueprint, about="alarms and dashboard")
        self._topic = self._make_topic()
        alarms = blueprint.rollout.alarms
        for number, model in enumerate(blueprint.models):
            self._of_model(number, model, BURN, "misses its objective", FAST_BURN, BURN_MIN)
            self._of_model(number, model, OVERFLOW, "overflows to Lambda", alarms.max_overflow_share, OVERFLOW_MIN)
            self._alarm(
                f"Silent{number}",
                f"no controller acts for {model}, or no gateway serves it",
                self._metric(GATEWAYS, model),
                statistic="Maximum",
                comparison="LessThanThreshold",
                threshold=1,
                minutes=SILENT_MIN,
                missing="breaching",
            )
        if alarms.max_usd_per_hour is not None:
            self._too_dear(alarms.max_usd_per_hour)
        self._failed_training()
        self._tell_of_orphans()
        if blueprint.trains:
            self._failed_function("TrainErrors", "the function that trains forecasters failed", TRAIN)
        if blueprint.mails:  # its schedule does not wait for an answer, so nobody else hears of it
            self._failed_function("ReportFails", "a report was not mailed", REPORT)
        if blueprint.posts:
            self._post_to_webhook()
        self._make("DeadLetters", blueprint.resources.alarm)
        self._month()
        if blueprint.lean:
            self._ending_node()
            return  # a dashboard costs 3 USD a month, and ElastiCache's metrics are not there
        self._full_store()
        self._unreachable()
        aws_cloudwatch.CfnDashboard(
            self, "Dashboard", dashboard_name=blueprint.name("service"), dashboard_body=self._dashboard()
        )

    def _make_topic(self) -> aws_sns.CfnTopic:
        blueprint = self.blueprint
        topic = aws_sns.CfnTopic(
            self,
            "Alarms",
            topic_name=blueprint.name(TOPIC),
            subscription=[{"protocol": "email", "endpoint": to} for to in blueprint.rollout.alarms.to] or None,
        )
        excuse(
            topic,
            "it carries names of alarms; CloudWatch cannot use AWS's own key, and another costs 1 USD a month",
            nag=("AwsSolutions-SNS2",),
            checkov=("CKV_AWS_26",),
        )
        publishes = {
            "Effect": "Allow",
            "Principal": {"Service": ["budgets.amazonaws.com", "cloudwatch.amazonaws.com"]},
            "Action": "sns:Publish",
            "Resource": topic.ref,
            "Condition": {"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
        }
        encrypted = {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sns:Publish",
            "Resource": topic.ref,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
        self._topic_policy = aws_sns.CfnTopicPolicy(
            self, "AlarmsPolicy", topics=[topic.ref], policy_document=document(publishes, encrypted)
        )
        return topic

    def _tell_of_orphans(self) -> None:
        """The topic hears why the function `orphans` fails: it found some, or cannot look."""
        aws_lambda.CfnEventInvokeConfig(
            self,
            "OrphansTold",
            function_name=self.blueprint.name(ORPHANS),
            qualifier="$LATEST",
            maximum_retry_attempts=0,  # a second try would find what the first one ended, and so tell nobody
            destination_config={"onFailure": {"destination": self._topic.ref}},
        )

    def _post_to_webhook(self) -> None:
        """The function `webhook` hears of each message of the topic; an alarm says where it could not post one."""
        function = self.imported("webhook-arn")
        allowed = aws_lambda.CfnPermission(
            self,
            "WebhookCalled",
            action="lambda:InvokeFunction",
            function_name=function,
            principal="sns.amazonaws.com",
            source_arn=self._topic.ref,
        )
        subscription = aws_sns.CfnSubscription(
            self, "WebhookHears", topic_arn=self._topic.ref, protocol="lambda", endpoint=function
        )
        subscription.add_resource_dependency(allowed)
        self._alarm(
            UNPOSTED,
            "an alarm could not be posted to the webhook",
            ("AWS/SQS", "ApproximateNumberOfMessagesVisible", {"QueueName": self.blueprint.name(UNPOSTED_QUEUE)}),
            statistic="Maximum",
            threshold=0,
            minutes=1,
        )

    def _month(self) -> None:
        """AWS's own budget on what bears the service's tag: it needs nothing of the service, and lags by hours.

        Its subscribers cannot change in place, so it tells the topic, which has those of all alarms.
        """
        tells = [{"subscriptionType": "SNS", "address": self._topic.ref}]
        budget = aws_budgets.CfnBudget(
            self,
            "Spending",
            budget={
                "budgetName": self.blueprint.name("spending"),
                "budgetType": "COST",
                "timeUnit": "MONTHLY",
                "budgetLimit": {"amount": self.blueprint.monthly_usd, "unit": "USD"},
                "costFilters": {"TagKeyValue": [f"user:{SERVICE}${self.blueprint.service}"]},
            },
            notifications_with_subscribers=[
                {
                    "notification": {
                        "notificationType": kind,
                        "comparisonOperator": "GREATER_THAN",
                        "threshold": percent,
                        "thresholdType": "PERCENTAGE",
                    },
                    "subscribers": tells,
                }
                for kind, percent in SPENT_PERCENT.items()
            ],
        )
        budget.add_resource_dependency(self._topic_policy)  # AWS looks whether the budget may tell it

    def _metric(self, name: str, model: str) -> tuple[str, str, dict[str, str]]:
        return NAMESPACE, name, {"service": self.blueprint.service, "model": model}

    def _of_model(self, number: int, model: str, metric: str, what: str, above: float, minutes: int) -> None:
        self._alarm(
            f"{metric}{number}",
            f"{model} {what}",
            self._metric(metric, model),
            statistic="Average",
            threshold=above,
            minutes=minutes,
        )

    def _too_dear(self, above: float) -> None:
        """Of the whole service: the controllers add up, since an alarm may look at no more than ten metrics."""
        self._alarm(
            SPEND,
            "it spends too much",
            (NAMESPACE, SPEND, {"service": self.blueprint.service}),
            statistic="Average",
            threshold=above,
            minutes=SPEND_MIN,
        )

    def _unreachable(self) -> None:
        """Alarm of the load balancer, which may not reach gateways that serve."""
        self._alarm(
            "Unreachable",
            "the load balancer reaches no gateway",
            (
                "AWS/NetworkELB",
                "HealthyHostCount",
                {"LoadBalancer": self.imported("balancer-name"), "TargetGroup": self.imported("targets-name")},
            ),
            statistic="Maximum",
            comparison="LessThanThreshold",
            threshold=1,
            minutes=SILENT_MIN,
            missing="breaching",
        )

    def _full_store(self) -> None:
        self._alarm(
            "StoreMemory",
            "the store is nearly full",
            (
                "AWS/ElastiCache",
                "DatabaseMemoryUsagePercentage",
                {"CacheClusterId": f"{store_id(self.blueprint)}-001"},
            ),
            statistic="Maximum",
            threshold=FULL_PERCENT,
            minutes=FULL_MIN,
        )

    def _ending_node(self) -> None:
        """Alarms of what nodes tell of themselves, which is nothing while all is well."""
        own = {"service": self.blueprint.service}
        self._alarm(
            "StoreMemory",
            "the store is nearly full",
            (NAMESPACE, STORE_MEMORY, own),
            statistic="Maximum",
            threshold=FULL_PERCENT,
            minutes=FULL_MIN,
        )
        self._alarm(
            "Certificate",
            f"the nodes' certificate ends within {CERTIFICATE_DAYS} days",
            (NAMESPACE, CERTIFICATE, own),
            statistic="Minimum",
            comparison="LessThanThreshold",
            threshold=CERTIFICATE_DAYS,
            minutes=1,
        )

    def _failed_training(self) -> None:
        """Of any forecaster, in the controllers' own processes or in the function, and one without an answer."""
        self._alarm(
            "TrainingFails",
            "a forecaster could not be trained, and the one before goes on",
            (NAMESPACE, FAILED_TRAININGS, {"service": self.blueprint.service}),
            statistic="Maximum",
            threshold=0,
            minutes=1,
        )

    def _failed_function(self, id_: str, what: str, function: str) -> None:
        """Alarm of a function that raised, or ran out of time or memory."""
        self._alarm(
            id_,
            what,
            ("AWS/Lambda", "Errors", {"FunctionName": self.blueprint.name(function)}),
            statistic="Sum",
            threshold=0,
            minutes=1,
        )

    def _alarm(
        self,
        id_: str,
        what: str,
        metric: tuple[str, str, dict[str, str]],
        *,
        statistic: str,
        threshold: float,
        minutes: int,
        **more: str,
    ) -> None:
        """An alarm that the emulated AWS does not have: nobody keeps its metric there."""
        service, (namespace, name, dimensions) = self.blueprint.service, metric
        alarm = AlarmSpec(
            name=self.blueprint.name(id_.lower()),
            about=alarm_about(service, what),
            namespace=namespace,
            metric=name,
            dimensions=dimensions,
            statistic=statistic,
            threshold=threshold,
            minutes=minutes,
            **more,
        )
        self._make(id_, alarm)

    def _make(self, id_: str, alarm: AlarmSpec) -> None:
        """The alarm, which tells by mail that it rings, and that it does no more."""
        aws_cloudwatch.CfnAlarm(
            self,
            id_,
            alarm_name=alarm.name,
            alarm_description=alarm.about,
            namespace=alarm.namespace,
            metric_name=alarm.metric,
            dimensions=[{"name": key, "value": value} for key, value in alarm.dimensions.items()],
            statistic=alarm.statistic,
            period=MINUTE_S,
            evaluation_periods=alarm.minutes,
            comparison_operator=alarm.comparison,
            threshold=alarm.threshold,
            treat_missing_data=alarm.missing,
            alarm_actions=[self._topic.ref],
            ok_actions=[self._topic.ref],
        )

    def _dashboard(self) -> str:
        titles = {
            BURN: "Budget burn (1 lasts exactly)",
            SPEND: "USD per hour",
            OVERFLOW: "Share answered by Lambda",
            GATEWAYS: "Gateways",
        }
        widgets: list[dict[str, Any]] = []
        for number, (metric, title) in enumerate(titles.items()):
            own = (NAMESPACE, metric, "service", self.blueprint.service, "model")
            lines = [[*own, model] for model in self.blueprint.models]
            widgets.append(
                {
                    "type": "metric",
                    "x": 12 * (number % 2),
                    "y": 6 * (number // 2),
                    "width": 12,
                    "height": 6,
                    "properties": {
                        "title": title,
                        "metrics": lines,
                        "period": MINUTE_S,
                        "stat": "Average",
                        "region": Aws.REGION,
                        "yAxis": {"left": {"min": 0}},
                    },
                }
            )
        return compact({"widgets": widgets})
