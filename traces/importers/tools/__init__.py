"""Formats of tracing tools."""
