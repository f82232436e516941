"""Targets, safety checks, claims, saved state, erase."""
