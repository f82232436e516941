"""Formats of published traces and of simulators."""
