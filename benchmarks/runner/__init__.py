"""Running a benchmark on a drive."""
