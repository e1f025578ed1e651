"""Errors of the operating system in words for people."""

from __future__ import annotations

import re
import socket

#: The form of asyncio and uvloop, where the address is written as Python writes it.
_BINDING = re.compile(
    r"on address \(?'(?P<host>[^']*)', (?P<port>\d+).*?\)?: "
    r"(?:\[[Ee]rrno \d+\] )?(?P<reason>[^:]+)$"
)


def describe_os_error(error: OSError) -> str:
    """Return one line that names the file or address, if there is one, and the reason."""
    reason = error.strerror or str(error)
    bound = _BINDING.search(reason)
    if bound is not None:
        host = f"[{bound['host']}]" if ":" in bound["host"] else bound["host"]
        return f"cannot listen on {host}:{bound['port']}: {bound['reason'].lower()}"
    if isinstance(error, socket.gaierror):
        return f"the name of a host cannot be resolved: {reason.lower()}"
    return f"{error.filename}: {reason}" if error.filename else reason
