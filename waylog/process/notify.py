"""Tells the parent of this process that it is ready, with the protocol of sd_notify(3).

systemd understands it (`Type=notify`), and so does our own supervisor.
"""

from __future__ import annotations

import os
import socket
from typing import Final

_SEND_TIMEOUT_S: Final = 5.0


def notify(state: str, timeout_s: float = _SEND_TIMEOUT_S) -> None:
    """Send one notification, e.g. "READY=1" or "STATUS=...".

    Waits up to `timeout_s` for a supervisor that does not read, then gives up. Does nothing if the
    process was started by hand (no NOTIFY_SOCKET in its environment).
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.settimeout(timeout_s)
        try:
            sender.sendto(state.encode(), address)
        except OSError:
            # A supervisor that is gone, or hangs, must not take a working process down with it.
            return


def notify_ready() -> None:
    """Report that this process now serves."""
    notify("READY=1")


def notify_starting(more_s: float) -> None:
    """Report that this process still starts, and may need `more_s` seconds from now on for it.

    One whose start takes long says so again before that time is over; else it is taken for one that
    hangs.
    """
    # Without waiting: what is lost is said again.
    notify(f"EXTEND_TIMEOUT_USEC={round(more_s * 1e6)}", 0)
