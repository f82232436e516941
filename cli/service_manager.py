"""The notification of systemd that a service is ready (Type=notify in its unit)."""

import os
import socket

from blkreel.common.console import notice


def notify_ready() -> None:
    """Send READY=1 to the socket in NOTIFY_SOCKET, as sd_notify(3) specifies. Without that variable: nothing."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect("\0" + address[1:] if address.startswith("@") else address)
            manager.send(b"READY=1")
    except OSError as error:
        notice(f"the service manager was not notified: NOTIFY_SOCKET={address}: {error.strerror}")
