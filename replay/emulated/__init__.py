"""Emulated drives: block devices whose timing follows the model of a drive."""
