"""Preconditioning, prefill and verification."""
