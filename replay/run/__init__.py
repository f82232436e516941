"""One replay, from its checks to the run directory."""
