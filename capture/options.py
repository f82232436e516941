"""The options of a capture."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class CaptureOptions:
    """devices, path: drives to record; with neither and a command, the drive under the current directory.

    layer: "device" for the drives below a volume, "volume" for the I/O of the named volume itself.

    duration_ns: the longest duration; None: until the command ends, or Ctrl-C.
    keep_ns, max_bytes: hold only the last part, of this duration or of this many bytes in the spool.
    pid, cgroup: mark the I/O of this process or control group, like that of a command; own_only: record no other.
    until_exit: end when the process of pid ends. files: record inodes and paths.
    public: other users may read the trace. private: record no name of a program, thread, control group, host or image,
    and no command line.
    live_ns: interval of the live view; None: none, which costs least.
    title, description: of the workload, for reports.
    command_streams: other files for the command's stdout and stderr, by name, as subprocess.Popen takes them.
    programs: kind of BPF programs, "auto", "tp_btf" or "raw_tp". io_start: False to record as on a kernel without
    block_io_start. source: of the rows, "auto" or one of sources.SOURCES.
    """

    output: Path
    devices: list[str] = field(default_factory=list)
    path: str | None = None
    layer: str = "device"
    command: list[str] = field(default_factory=list)
    user: str | None = None
    duration_ns: int | None = None
    keep_ns: int | None = None
    max_bytes: int | None = None
    pid: int | None = None
    cgroup: str | None = None
    own_only: bool = False
    until_exit: bool = False
    files: bool = False
    cold: bool = False
    force: bool = False
    public: bool = False
    private: bool = False
    ring_bytes: int = 16 << 20
    programs: str = "auto"
    io_start: bool = True
    source: str = "auto"
    live_ns: int | None = None
    title: str | None = None
    description: str | None = None
    command_streams: dict[str, int] = field(default_factory=dict)
