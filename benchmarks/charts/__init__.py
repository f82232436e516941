"""What the charts of all reports share: drives and their figures, tables, rankings."""
