"""Telemetry over OTLP by HTTP: spans of sampled requests, and the metrics of a process."""
