"""The page of a run, a trace or a comparison: its sections, tables, facts of drives, method."""
