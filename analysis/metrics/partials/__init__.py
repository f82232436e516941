"""The additive parts of a run's metrics: `+` pools runs, join() joins parts of one run."""
