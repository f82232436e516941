"""Commands about drives: states, replays, benchmarks, emulated and simulated drives."""
