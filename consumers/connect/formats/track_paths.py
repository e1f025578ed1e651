"""Which file has the positions of a device and a day: DIRECTORY/USER/DEVICE/2025-11-01.gpx."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path
from typing import Final
from urllib.parse import quote

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.positions import moment_of

_NAME_BYTES_MAX: Final = 255
#: A quoted name has these left, and a folder named so would be another one.
_DOTS: Final = {".": "%2E", "..": "%2E%2E"}


class TrackPaths:
    """The files below one folder."""

    def __init__(self, directory: Path, suffix: str, zone: tzinfo) -> None:
        """Days are those of the zone."""
        self._directory: Final = directory
        self._suffix: Final = suffix
        self._zone: Final = zone

    def file(self, device: str, time_ms: int) -> Path:
        """Return the file of a device at a time; raises DataException."""
        try:
            day = moment_of(time_ms).astimezone(self._zone).date().isoformat()
        except OverflowError as error:
            raise DataException(f"{time_ms} ms is no time in the years 1 to 9999") from error
        return self.folder(device) / (day + self._suffix)

    def folder(self, device: str) -> Path:
        """Return the folder of a device; raises DataException for a name that no folder has.

        Characters that could lead elsewhere are percent-encoded.
        """
        user, slash, name = device.partition("/")
        parts = [_part(each) for each in ((user, name) if slash else (device,))]
        if not all(parts) or any(len(each) > _NAME_BYTES_MAX for each in parts):
            raise DataException(f"no folder can have the name of this device: {device[:80]!r}")
        return self._directory.joinpath(*parts)

    def files(self, device: str) -> list[Path]:
        """Return the files of a device that there are; raises DataException, OSError."""
        return sorted(self.folder(device).glob(f"????-??-??{self._suffix}"))


def _part(name: str) -> str:
    quoted = quote(name, safe=" @+,=", errors="surrogatepass")
    return _DOTS.get(quoted, quoted)
