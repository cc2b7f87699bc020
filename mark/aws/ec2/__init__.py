"""EC2 as the Cloud port: the fleet, launches and their guardrails, and single instances that are rented."""
