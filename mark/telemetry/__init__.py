"""Telemetry: logs, metrics, the status documents and journal files."""
