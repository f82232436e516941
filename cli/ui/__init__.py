"""Progress, live view and terminal summaries."""
