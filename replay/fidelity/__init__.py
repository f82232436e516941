"""Fidelity of a run: lateness, gaps, depth, certificate and verdict."""
