"""A certificate authority for tests."""

from __future__ import annotations

import base64
from datetime import datetime
from itertools import count
from pathlib import Path

import trustme


class Certificates:
    """PEM files of the authority, the broker and clients."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)
        folder.mkdir(exist_ok=True)
        self._authority = trustme.CA()
        self.authority = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.authority))
        self.broker = self.make("127.0.0.1", "localhost", common_name="broker")

    def make(
        self, *names: str, common_name: str, valid: tuple[datetime, datetime] | None = None
    ) -> Path:
        """Issue a certificate; return a file with the key and the chain."""
        # Several tests share an authority: what one makes does not replace what another one has.
        path = self._folder / f"{common_name}-{next(self._numbers)}.pem"
        not_before, not_after = valid or (None, None)
        issued = self._authority.issue_cert(
            *names,
            common_name=common_name,
            organization_name="Waylog",
            not_before=not_before,
            not_after=not_after,
        )
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path


def of_version_2(path: Path) -> Path:
    """Make the first certificate of a file (PEM) one of X.509 version 2; return the file."""
    text = path.read_text("ascii")
    head, begin, rest = text.partition("-----BEGIN CERTIFICATE-----\n")
    body, end, tail = rest.partition("-----END CERTIFICATE-----\n")
    # The version is the first member: a context tag around an INTEGER, which is one less.
    encoded = base64.b64decode(body).replace(bytes.fromhex("a003020102"), b"\xa0\3\2\1\1", 1)
    path.write_text(head + begin + base64.encodebytes(encoded).decode() + end + tail, "ascii")
    return path
