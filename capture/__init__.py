"""Watching a workload: from the kernel to a trace."""
