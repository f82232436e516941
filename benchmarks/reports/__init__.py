"""One file for each report of a benchmark: what it measures, its figures and tables, and the charts of its page."""
