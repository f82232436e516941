"""Writes and other I/O beside a replay: what they are, where they go, their pace, and what became of them."""
