"""Reload of a listener's certificates when their files change; open connections stay."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker_core.security.certificate_check import ListenerCertificates, listener_certificates
from broker_core.security.tls import server_context
from waylog.network.tls.certificate_dates import FileStamp, file_stamp

_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")


class ReloadableContext:
    """`context` is what a server listens with; each handshake uses the newest certificates."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        self._properties = properties
        self._stamps = self._look()
        self.context = self._newest = server_context(properties)
        self.context.sni_callback = self._choose
        #: What clients are shown; None if it cannot be told.
        self.certificates: ListenerCertificates | None = listener_certificates(properties)

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        # Called for each client hello, also without a server name.
        connection.context = self._newest

    def _look(self) -> list[FileStamp]:
        paths = (self._properties.get(name) for name in _FILES)
        return [file_stamp(Path(path)) if path else None for path in paths]

    def reload_if_changed(self) -> bool:
        """Return True if certificates were reloaded.

        Raises ConfigError and keeps the old ones; the next call tries the new ones again.
        """
        stamps = self._look()
        if stamps == self._stamps:
            return False
        context = server_context(self._properties)
        certificates = listener_certificates(self._properties)
        self._newest, self.certificates = context, certificates
        # Last: what has not been taken is still new.
        self._stamps = stamps
        return True
