"""When the certificates that a listener shows are valid, in the words of all our listeners.

A listener with a certificate that nobody accepts starts, as Kafka's do: clients may be told not to
verify it. But its operator should hear of it from the listener, not from its clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

#: Seconds after which the same is said again of a listener's certificate.
WARN_AGAIN_S: Final = 86_400.0
#: A certificate is to be renewed so long before its end, or in the last quarter of its time if that
#: is shorter: some are made for days.
_RENEW: Final = timedelta(days=14)

#: Identifies a version of a file: a certificate can be replaced by a rename, by writing over it, or
#: by a link that is changed to another folder.
FileStamp = tuple[int, int, int] | None


class CertificateDates(NamedTuple):
    """When a listener's certificates hold: the latest beginning and the earliest end, in UTC."""

    not_before: datetime
    not_after: datetime

    @classmethod
    def of(cls, chain: Sequence[Certificate]) -> CertificateDates:
        """Return the dates between which all certificates of a chain are valid."""
        return cls(
            max(each.not_valid_before_utc for each in chain),
            min(each.not_valid_after_utc for each in chain),
        )

    def trouble(self, now: datetime) -> str | None:
        """Return why the certificates are not valid at a time, None if they are."""
        if now > self.not_after:
            return f"the certificate has expired on {_text(self.not_after)}"
        if now < self.not_before:
            return f"the certificate is not valid before {_text(self.not_before)}"
        return None

    def warning(self, now: datetime) -> str | None:
        """Return what an operator should hear of the dates at a time, None if all is well."""
        trouble = self.trouble(now)
        if trouble is not None:
            return f"{trouble}; clients that verify it do not connect"
        if self.not_after - now < min(_RENEW, (self.not_after - self.not_before) / 4):
            return f"the certificate expires on {_text(self.not_after)}; renew it before"
        return None


class DateWarnings:
    """What there is to say of one listener's certificates: when it begins, and every day."""

    def __init__(self) -> None:
        self._said: tuple[CertificateDates, bool, float] | None = None

    def due(self, dates: CertificateDates | None, now: datetime, now_s: float) -> str | None:
        """Return what has to be said now, None for nothing. `now_s` is a monotonic clock's."""
        warning = None if dates is None else dates.warning(now)
        if dates is None or warning is None:
            self._said = None
            return None
        is_trouble = dates.trouble(now) is not None
        if self._said is not None:
            *what, said_at = self._said
            if what == [dates, is_trouble] and now_s - said_at < WARN_AGAIN_S:
                return None
        self._said = dates, is_trouble, now_s
        return warning


def read_dates(path: Path) -> CertificateDates | None:
    """Return the dates of a file's certificates (PEM); None if it has none that can be read."""
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return CertificateDates.of(load_pem_x509_certificates(path.read_bytes()))
    except Exception:  # cryptography's own errors have no class in common
        return None  # told by those who load it


def file_stamp(path: Path) -> FileStamp:
    """Return what changes when a file is replaced or written; None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
