"""Recipes: benchmarks as data."""
