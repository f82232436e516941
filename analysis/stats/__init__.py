"""Intervals, ranking, regression conditions."""
