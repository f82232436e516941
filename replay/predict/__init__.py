"""Simulated drives that are fitted to runs of a real one, and what a trace takes on them."""
