"""Tests of mark/telemetry."""
