"""What a trace or a run says: metrics, comparison, charts, reports."""
