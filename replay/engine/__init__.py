"""Driving the replay helper."""
