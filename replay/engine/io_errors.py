"""Words for I/Os that failed."""

import errno
import os

from blkreel.traces.format.schema import OP_NAMES

from .engine import Batch


def error_kind(op: int, status: int) -> str:
    """`write EIO`."""
    return f"{OP_NAMES[op]} {errno.errorcode.get(-status, -status)}"


def error_text(rows: Batch, index: int) -> str:
    """`write of 4,096 bytes at 1,048,576: Input/output error (EIO)`."""
    code = -int(rows["status"][index])
    return (f"{OP_NAMES[int(rows['op'][index])]} of {int(rows['length_bytes'][index]):,} bytes at "
            f"{int(rows['offset_bytes'][index]):,}: {os.strerror(code)} ({errno.errorcode.get(code, code)})")
