"""Accounts of emulated drives."""

from blkreel.common.emulated import Calibration, Counts, EmulatedAccount


def calibration(**changes) -> Calibration:
    reached = {"p50_ns": 200_000, "p99_ns": 210_000}
    return {"read_overhead_ns": 20_000, "read_ns_per_byte": 0.1, "write_overhead_ns": 20_000, "write_ns_per_byte": 0.1,
            "flush_overhead_ns": 30_000, "read_iops": 80_000.0, "write_iops": 60_000.0, "read_bandwidth": 4e9,
            "write_bandwidth": 4e9,
            "check": {"asked_ns": 200_000, "read": reached, "write": reached, "flush": reached}, **changes}


def account(counts=None, **changes) -> EmulatedAccount:
    zeroes: Counts = {name: kind(0) for name, kind in Counts.__annotations__.items()}
    return {"version": 1, "name": "sata", "drive": "nil:1073741824,read_latency=90us", "size_bytes": 1 << 30,
            "device": "/dev/loop0", "backend": "fuse", "times_of": "issue", "image": None, "pid": 1,
            "started_at": "2026-01-01T00:00:00+00:00", "renewed_ns": 0, "calibration": calibration(), "check": None,
            "beyond": [], "counts": {**zeroes, **(counts or {})},
            "host": {"waited_ns": 0, "stolen_ns": 0, "reported_kib": None},
            **changes}
