"""Tools that make a trace from other traces, or from rows: each writes a new file and never changes its input."""
