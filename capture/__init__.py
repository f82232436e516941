"""Recording the I/O of a workload: from the kernel to a trace."""
