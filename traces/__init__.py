"""The trace: its format, reading, writing, checking; and the drive a trace comes from."""
