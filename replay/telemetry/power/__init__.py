"""Power of the drive, by a program, a log, or a rail that the machine measures."""
