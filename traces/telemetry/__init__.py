"""Telemetry files of a run."""
