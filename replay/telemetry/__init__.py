"""What is measured beside a run: temperature, power, SMART, the link, others' I/O. docs/telemetry.md tells of each."""
