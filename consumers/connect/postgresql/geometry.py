"""Places as PostGIS reads them: extended well-known binary, in hexadecimal digits.

Source: PostGIS's documentation, "OpenGIS WKB and WKT"; the flag for the reference system is that
of `liblwgeom`.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any, Final

from consumers.connect.data.exceptions import DataException

WGS84: Final = 4326
_LITTLE_ENDIAN: Final = 1
_POINT_WITH_SRID: Final = 0x2000_0001
_POINT: Final = struct.Struct("<BIIdd")


def point(latitude: Any, longitude: Any) -> str | None:
    """Return a place in degrees WGS84, None if a coordinate is missing.

    Raises DataException for coordinates that are no numbers, or on no globe: PostGIS would make
    another place of those.
    """
    if latitude is None or longitude is None:
        return None
    _check("latitude", latitude, 90)
    _check("longitude", longitude, 180)
    return _POINT.pack(_LITTLE_ENDIAN, _POINT_WITH_SRID, WGS84, longitude, latitude).hex()


def _check(name: str, degrees: Any, limit: int) -> None:
    if not isinstance(degrees, (int, float, Decimal)) or isinstance(degrees, bool):
        raise DataException(f"{name} has to be a number: {type(degrees).__name__}")
    if not -limit <= degrees <= limit:
        raise DataException(f"{name} has to be from -{limit} to {limit} degrees")
