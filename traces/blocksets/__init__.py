"""Sets of drive blocks."""
