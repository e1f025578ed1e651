"""Writes small FIT files, as Garmin's FIT protocol has them."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

#: FIT counts seconds from here.
EPOCH = datetime(1989, 12, 31, tzinfo=UTC)
_CRC_TABLE = (
    *(0x0000, 0xCC01, 0xD801, 0x1400, 0xF001, 0x3C00, 0x2800, 0xE401),
    *(0xA001, 0x6C00, 0x7800, 0xB401, 0x5000, 0x9C01, 0x8801, 0x4400),
)
_RECORD = 20  # the number of message `record`
#: Number, size and base type of its fields: timestamp, position_lat, position_long, altitude (in
#: 1/5 m from -500 m on), heart_rate, speed (mm/s).
_FIELDS = (
    *((253, 4, 0x86), (0, 4, 0x85), (1, 4, 0x85)),
    *((2, 2, 0x84), (3, 1, 0x02), (6, 2, 0x84)),
)
_NO_PLACE = 0x7FFFFFFF


def crc(content: bytes) -> int:
    """Return FIT's 16-bit checksum."""
    found = 0
    for byte in content:
        for nibble in (byte & 0xF, byte >> 4):
            found = (found >> 4) & 0x0FFF ^ _CRC_TABLE[found & 0xF] ^ _CRC_TABLE[nibble]
    return found


def semicircles(degrees: float | None) -> int:
    """Return degrees as FIT has them."""
    return _NO_PLACE if degrees is None else round(degrees * 2**31 / 180)


def fit_file(
    *records: tuple[datetime, float | None, float | None, float, int, float], protocol: int = 0x10
) -> bytes:
    """Return a file with records: time, latitude, longitude, altitude (m), heart rate, m/s."""
    body = struct.pack("<BBBHB", 0x40, 0, 0, _RECORD, len(_FIELDS))
    body += b"".join(struct.pack("<BBB", *field) for field in _FIELDS)
    for time, lat, lon, altitude, heart_rate, speed in records:
        body += struct.pack(
            "<BIiiHBH",
            0,
            round((time - EPOCH).total_seconds()),
            semicircles(lat),
            semicircles(lon),
            round((altitude + 500) * 5),
            heart_rate,
            round(speed * 1000),
        )
    header = struct.pack("<BBHI4s", 12, protocol, 2195, len(body), b".FIT")
    return header + body + struct.pack("<H", crc(header + body))
