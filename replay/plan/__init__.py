"""From a trace to a plan: pace, idle time, mapping, dependencies."""
