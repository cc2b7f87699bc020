"""Limits of an account: vCPU quotas, which Service Quotas tells and EC2 enforces; its plan; Lambda's settings."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from mark.aws.account.quotas import KEPT_UNRESERVED, code_of_quota
from mark.domain.offerings.offering import InstanceType, Market
from mark.domain.offerings.quota import quota_family
from mark.emulator.config import ACCOUNT, REGION
from mark.emulator.ec2.machine import Machine, MachineState
from mark.emulator.errors import ApiError, not_emulated
from mark.emulator.moto_parts import backend_of, is_free_tier
from mark.emulator.paging import page_of

ACCOUNT_SETTINGS = "GET /2016-08-19/account-settings"
MOST_A_PAGE = 100
USUAL: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "L-1216C47A": ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 20_000.0),
        "L-34B43A08": ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 20_000.0),
        "L-DB2E81BA": ("Running On-Demand G and VT instances", 2_000.0),
        "L-3819A6DF": ("All G and VT Spot Instance Requests", 2_000.0),
        "L-417A185B": ("Running On-Demand P instances", 2_000.0),
        "L-7212CCBC": ("All P4, P3 and P2 Spot Instance Requests", 2_000.0),
        "L-1945791B": ("Running On-Demand Inf instances", 2_000.0),
        "L-B5D1601B": ("All Inf Spot Instance Requests", 2_000.0),
        "L-0263D0A3": ("EC2-VPC Elastic IPs", 5.0),
    }
)
"""Quotas of a grown account: code -> name, vCPUs (addresses for the last)."""


NEW: Mapping[str, float] = MappingProxyType(
    dict.fromkeys(USUAL, 0.0) | {"L-1216C47A": 5.0, "L-34B43A08": 5.0, "L-0263D0A3": 5.0}
)
"""Quotas of a new account: 5 vCPUs of the standard families in either market, and nothing with an accelerator."""
NEW_CONCURRENCY, NEW_MEMORY_MB = 10, 3008
"""Of Lambda: "New AWS accounts have reduced concurrency and memory quotas" (its guide, quotas). How far is not
documented; these are what people report (awslabs/landing-zone-accelerator #1139, aws/aws-dotnet-deploy #684)."""
NEW_LISTING_LAG_S = 5.0
"""Of EC2: "Eventual consistency [...] an API call might take some time to propagate" (its guide); how long is not
documented, and who has just been told of an instance must not need to see it listed."""
NOT_ELIGIBLE = (
    "The specified instance type is not eligible for Free Tier. For a list of Free Tier instance types, run "
    "'describe-instance-types' with the filter 'free-tier-eligible=true'."
)
"""EC2's words for a type that an account on the Free plan may not launch (splunk/attack_range #1302)."""
COUNTED = (MachineState.PENDING, MachineState.RUNNING, MachineState.STOPPING)
"""States in which EC2 counts an instance's vCPUs."""


class AccountLimits:
    """Quotas, the plan, and Lambda's limits of the account.

    `quotas`: code -> value, where it is not the usual one. `concurrency`: Lambda's calls at once. `free_plan`: on
    AWS's Free plan, whose accounts launch no type but those that `is_free_tier` names. `front`: type and count of
    machines on demand that count against quotas and are processes here, a service's nodes or gateways.
    """

    def __init__(
        self,
        quotas: Mapping[str, float],
        concurrency: int,
        *,
        free_plan: bool = False,
        front: tuple[InstanceType, int] | None = None,
    ) -> None:
        self._front = () if front is None else (front,)
        self._free_plan = free_plan
        self._quotas = {code: (name, quotas.get(code, value)) for code, (name, value) in sorted(USUAL.items())}
        self._concurrency = concurrency

    def instances_left(
        self,
        item: InstanceType,
        market: Market,
        machines: Iterable[Machine],
        more: Iterable[tuple[InstanceType, int]] = (),
    ) -> int:
        """Instances of the type that the quota of its family still allows in a market, beside those machines.

        more: what will be launched there, too, by type.
        """
        family = quota_family(item.name, market)
        _, quota = self._quotas.get(code_of_quota(family, market), ("", math.inf))
        taken = sum(
            one.spec.instance_type.vcpus
            for one in machines
            if one.state in COUNTED
            and one.spec.market is market
            and quota_family(one.spec.instance_type.name, market) == family
        )
        if market is Market.ON_DEMAND:
            more = (*self._front, *more)
        taken += sum(kind.vcpus * count for kind, count in more if quota_family(kind.name, market) == family)
        return sys.maxsize if math.isinf(quota) else max(0, math.floor((quota - taken) / item.vcpus))

    def require_eligible(self, instance_type: str) -> None:
        """ApiError for a type that the account's plan does not let it launch."""
        if self._free_plan and not is_free_tier(instance_type):
            raise ApiError("InvalidParameterCombination", NOT_ELIGIBLE)

    def answer(self, action: str, body: bytes) -> dict[str, Any]:
        """The reply to a call of Service Quotas, or of the Free Tier API."""
        if action == "GetAccountPlanState":
            kind = "FREE" if self._free_plan else "PAID"
            return {"accountId": ACCOUNT, "accountPlanType": kind, "accountPlanStatus": "ACTIVE"}
        if action != "ListServiceQuotas":
            raise not_emulated(action)
        request = json.loads(body)
        if request["ServiceCode"] != "ec2":
            raise ApiError("NoSuchResourceException", f"no quotas of {request['ServiceCode']} are known here")
        listed = tuple(self._quotas.items())
        shown, following = page_of(listed, request.get("NextToken"), request.get("MaxResults"), most=MOST_A_PAGE)
        page = [
            {
                "ServiceCode": "ec2",
                "QuotaCode": code,
                "QuotaArn": f"arn:aws:servicequotas:{REGION}:{ACCOUNT}:ec2/{code}",
                "QuotaName": name,
                "Value": value,
                "Unit": "None",
                "Adjustable": True,
            }
            for code, (name, value) in shown
        ]
        return {"Quotas": page, **({"NextToken": following} if following else {})}

    def reserve(self, function: str, calls: int) -> None:
        """Refuse what leaves too few calls at once to the other functions. Errors: ApiError."""
        least = min(KEPT_UNRESERVED, self._concurrency)
        if self._concurrency - sum((_reserved() | {function: calls}).values()) < least:
            raise ApiError(
                "InvalidParameterValueException",
                "Specified ReservedConcurrentExecutions for function decreases account's "
                f"UnreservedConcurrentExecution below its minimum value of [{least}].",
            )

    def account_settings(self) -> dict[str, Any]:
        """The reply to Lambda's GetAccountSettings."""
        return {
            "AccountLimit": {
                "ConcurrentExecutions": self._concurrency,
                "UnreservedConcurrentExecutions": self._concurrency - sum(_reserved().values()),
                "TotalCodeSize": 80_530_636_800,
            },
            "AccountUsage": {"TotalCodeSize": 0, "FunctionCount": 0},
        }


def _reserved() -> dict[str, int]:
    """Calls at once that functions have for themselves."""
    functions = backend_of("lambda").list_functions()
    return {one.function_name: int(one.reserved_concurrency or 0) for one in functions}
