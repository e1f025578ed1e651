"""Which devices have been erased, and when: for those who read what is older than the erasure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gateway.known_fixes import device_key

#: Longer than any log keeps what has been erased by default.
KEPT_MS: Final = 30 * 24 * 3600 * 1000
_DEVICES_MAX: Final = 1_000_000


class Erasures:
    """By keys of devices, not by their names. Times are ms since 1970."""

    def __init__(self) -> None:
        self._times: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._times)

    def note(self, device: str, erased_ms: int) -> None:
        """A device has been erased."""
        self._put(device_key(device), erased_ms)

    def restore(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Take what `pairs` has said before."""
        for key, erased_ms in pairs:
            self._put(key, erased_ms)

    def pairs(self, now_ms: int) -> list[tuple[int, int]]:
        """Those that are to be remembered."""
        self._times = {key: ms for key, ms in self._times.items() if ms > now_ms - KEPT_MS}
        return list(self._times.items())

    def covers(self, device: str, written_ms: int) -> bool:
        """Whether what was written of a device then has been erased since."""
        return bool(self._times) and written_ms <= self._times.get(device_key(device), -1)

    def filter(self) -> Callable[[bytes | None, int], bool] | None:
        """`covers` for keys of records; None where nothing has been erased."""
        return self._covers_key if self._times else None

    def _covers_key(self, key: bytes | None, written_ms: int) -> bool:
        return key is not None and self.covers(key.decode("utf-8", "surrogateescape"), written_ms)

    def _put(self, key: int, erased_ms: int) -> None:
        erased_ms = max(erased_ms, self._times.pop(key, erased_ms))
        self._times[key] = erased_ms
        if len(self._times) > _DEVICES_MAX:
            del self._times[next(iter(self._times))]
