"""Sensors of drives and of the host."""
