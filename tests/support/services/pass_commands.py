"""Pass commands to a drive by ioctl: pass_commands.py DEVICE COMMAND...

COMMAND: the bytes of a SCSI command in hex, with the bytes that it reads or writes: `28 00 00...:read:4096`; or
`submit:OPCODE:BLOCK:BLOCKS:CONTROL` for NVME_IOCTL_SUBMIT_IO with blocks of 512 bytes. Without other imports, because
it runs in a guest where each takes a second.
"""

import ctypes
import fcntl
import os
import struct
import sys

SG_IO = 0x2285
DIRECTIONS = {"none": -1, "write": -2, "read": -3}
NVME_IOCTL_SUBMIT_IO = 0x40304E42


def scsi(device: int, text: str) -> None:
    command, direction, length = text.split(":")
    bytes_ = ctypes.create_string_buffer(bytes.fromhex(command), len(bytes.fromhex(command)))
    data, sense = ctypes.create_string_buffer(int(length) or 1), ctypes.create_string_buffer(64)
    header = struct.pack("iiBBHIQQQIIiQBBBBHHiII4x", ord("S"), DIRECTIONS[direction], len(bytes_), len(sense), 0,
                         int(length), *map(ctypes.addressof, (data, bytes_, sense)), 20_000, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                         0, 0, 0)
    result = bytearray(header)
    fcntl.ioctl(device, SG_IO, result)
    print(f"{command}: status {result[64]}")


def submit(device: int, text: str) -> None:
    opcode, block, blocks, control = map(int, text.split(":")[1:])
    data = ctypes.create_string_buffer(blocks * 512 + 4096)
    aligned = (ctypes.addressof(data) + 4095) & ~4095
    fcntl.ioctl(device, NVME_IOCTL_SUBMIT_IO, struct.pack(
        "BBHHHQQQIIHH4x", opcode, 0, control, blocks - 1, 0, 0, aligned, block, 0, 0, 0, 0))


drive = os.open(sys.argv[1], os.O_RDWR)
for word in sys.argv[2:]:
    (submit if word.startswith("submit:") else scsi)(drive, word)
