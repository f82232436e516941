"""Metrics of a trace or a run, as mergeable partial results."""
