"""Traces from where metrics are kept: Prometheus and CloudWatch are asked for a span, page by page.

`span` decides which instants are asked for and makes the trace; `prometheus` and `cloudwatch` ask. Nothing is
written until all pages are there.
"""
