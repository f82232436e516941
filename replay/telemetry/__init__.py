"""Measurements beside a run: temperature, power, SMART, link, external I/O (docs/telemetry.md)."""
