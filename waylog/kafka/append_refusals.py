"""Keeps in mind why a log refuses to store, from the error codes of its answers."""

from __future__ import annotations

from typing import Final

from waylog.kafka.protocol.error_codes import ErrorCode

#: Refusals for longer than this are trouble: a leader whose disk failed is replaced in less time;
#: without another replica it goes on refusing.
_AFTER_S: Final = 1.0
_FOR_S: Final = 3.0
#: A broker waits this long for replicas before it says that they are late (`_APPEND_TIMEOUT_MS` of
#: the producer), and longer until it says so again.
_LATE_FOR_S: Final = 15.0

_FEW_REPLICAS: Final = (
    "the log refuses to store: fewer replicas are in sync than min.insync.replicas asks for; are "
    "all brokers running (`waylog cluster describe`)?"
)
_WORDS: Final = {
    ErrorCode.KAFKA_STORAGE_ERROR: "the log refuses to store: its disk may be full",
    ErrorCode.NOT_ENOUGH_REPLICAS: _FEW_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _FEW_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT: "the log does not store in time: its replicas do not follow; are "
    "all brokers running (`waylog cluster describe`)?",
}


class AppendRefusals:
    """The refusals since the log last stored something; times are of one monotonic clock."""

    def __init__(self) -> None:
        self._code = 0
        self._since: float | None = None
        self._at = 0.0
        self._lasts_s = _FOR_S

    def stored(self) -> None:
        """Note that the log has stored a batch."""
        self._since = None

    def refused(self, code: int, now_s: float) -> None:
        """Note an error code; those that tell of no lasting cause are left out."""
        if code not in _WORDS:
            return
        is_late = code == ErrorCode.REQUEST_TIMED_OUT
        lasts_s = _LATE_FOR_S if is_late else _FOR_S
        if self._since is None or now_s - self._at > lasts_s:
            # Late replicas have been waited for already.
            self._since = now_s - 2 * _AFTER_S if is_late else now_s
        self._code, self._at, self._lasts_s = code, now_s, lasts_s

    def reason(self, now_s: float) -> str | None:
        """Return why the log refuses now, in words; None if it does not."""
        if self._since is None:
            return None
        if now_s - self._since <= _AFTER_S or now_s - self._at >= self._lasts_s:
            return None
        return _WORDS[ErrorCode(self._code)]

    def disk_refuses(self, now_s: float) -> bool:
        """Return whether the log cannot write: that does not pass soon."""
        return self._code == ErrorCode.KAFKA_STORAGE_ERROR and self.reason(now_s) is not None
