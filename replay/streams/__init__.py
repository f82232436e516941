"""Generated workloads as streams of plan batches."""
