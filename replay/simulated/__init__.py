"""The simulated drive."""
