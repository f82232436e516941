"""What a busy machine does to a run, and no fault of the tested code."""

HOST_REASONS = {"host_effect", "metric_withheld", "all_metrics_withheld", "cpu_steal"}
