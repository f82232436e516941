"""Issuing I/O: from a trace or a generated stream to a drive, with a record of each I/O."""
