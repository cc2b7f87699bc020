"""Discounts of Savings Plans that are assumed where neither AWS nor a file tells them."""

from __future__ import annotations

from mark.domain.commitments.eligible import Compute

ASSUMED = {
    (Compute.EC2, 1, True): 0.37,
    (Compute.EC2, 1, False): 0.27,
    (Compute.EC2, 3, True): 0.57,
    (Compute.EC2, 3, False): 0.49,
    (Compute.FARGATE, 1, False): 0.20,
    (Compute.FARGATE, 3, False): 0.45,
    (Compute.LAMBDA, 1, False): 0.12,
    (Compute.LAMBDA, 3, False): 0.17,
}
"""By kind of compute, years, and whether the plan is for one family.

Nothing paid upfront, Linux, about c5 and m5 in us-east-1: an assumption, not a price. AWS states the most that a
plan may save: 72 % for one family, 66 % on any instance, 50 % on Fargate and 17 % on Lambda (AWS, "Savings Plans
pricing"). None of these is above it.
"""
SOURCE = "an assumption for c5 and m5 in us-east-1 with nothing paid upfront"


def assumed_discount(compute: Compute, *, years: int, one_family: bool) -> float:
    """The assumed discount of a plan, in [0, 1); 0 for what it does not cover."""
    return ASSUMED.get((compute, 3 if years >= 3 else 1, one_family), 0.0)
