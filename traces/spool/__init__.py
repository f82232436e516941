"""Spools: crash-safe files of row blocks that become a trace."""
