"""Comparisons I/O by I/O."""
