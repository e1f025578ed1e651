"""A listener's certificates, read again when their files change; connections that are open stay."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker_core.security.tls import server_context

_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")

#: What tells one state of a file from another: a certificate is replaced by a rename, by writing
#: over it, or by turning a link to another folder.
_Stamp = tuple[int, int, int] | None


class ReloadableContext:
    """`context` is what a server listens with for ever; each handshake gets the newest one."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        self._properties = properties
        self._stamps = self._look()
        self.context = self._newest = server_context(properties)
        self.context.sni_callback = self._choose

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        # Called for each client hello, whether it names a server or not.
        connection.context = self._newest

    def _look(self) -> list[_Stamp]:
        stamps: list[_Stamp] = []
        for name in _FILES:
            path = self._properties.get(name)
            try:
                status = Path(path).stat() if path else None
            except OSError:
                status = None
            stamps.append(status and (status.st_mtime_ns, status.st_ino, status.st_size))
        return stamps

    def reload_if_changed(self) -> bool:
        """True if there are new certificates. Raises ConfigError, and then the old ones stay."""
        stamps = self._look()
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        self._newest = server_context(self._properties)
        return True
