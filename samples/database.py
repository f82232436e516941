"""A PostgreSQL server whose table is on an emulated drive."""

from collections.abc import Sequence
from pathlib import Path

from scratch import RECORDINGS, SATA, Command, Root, emulated_drive

_ROOT = Root("postgresql", ("postgresql",))
_DATA = "/srv"  # where the system has the drive
_DATABASE = f"{_DATA}/database"
_SCALE = 70  # 1.05 GB of rows, 0.15 GB of index
_DRIVE_BYTES = 1700 << 20
_SCRIPTS = Path(__file__).with_name("postgresql")
_AS_POSTGRES = "--userspec=postgres:postgres"


def record_database(name: str, script: str, arguments: Sequence[str] = ()) -> None:
    """script: of samples/postgresql. arguments: behind the directory of the database."""
    with emulated_drive(_DRIVE_BYTES, SATA) as scratch:
        scratch.install_elsewhere(_ROOT, _DATA)
        for path in _SCRIPTS.glob("*.sh"):
            scratch.write(f"/opt/{path.name}", path.read_text())
        scratch.run("install", "-d", "-o", "postgres", "-g", "postgres", _DATABASE)
        scratch.run("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "sh", "/opt/create.sh",
                    _DATABASE, str(_SCALE))
        command: Command = ["chroot", _AS_POSTGRES, scratch.system, "sh", f"/opt/{script}.sh", _DATABASE, *arguments]
        for _ in range(RECORDINGS):
            scratch.settle()
            scratch.record_best(name, command)
        scratch.settle()
        scratch.time(command)
