"""Serialised jsonv2 answers, for clients with many points.

All members of an answer but the distance and the nearest point depend on the place alone. They are
serialised once per place and cached. The bytes are those of `nominatim.render_reverse`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from geoservice.reverse.geocoder import Geocoder, Place, ReverseResult
from geoservice.web.nominatim import answer

#: Places per generation of the cache: when the newer generation is full, it replaces the older one.
#: A place takes about a kilobyte, and serialising it costs twenty times as much as sending it
#: again.
_PLACES_MAX: Final = 16_000

_encode = msgspec.json.Encoder().encode

#: Object, address tail and house number on a line; for a town its id, type and OSM type.
_Key = tuple[int, int, int] | tuple[int, str, str | None]
_Written = tuple[bytes, bytes, bytes]  # the parts before the point, before the distance, after it


class RenderedAnswers:
    """A cache of serialised answers of one geocoder. For use by one thread or event loop."""

    def __init__(self, geocoder: Geocoder) -> None:
        self.geocoder = geocoder
        self._written: dict[_Key, _Written] = {}
        self._older: dict[_Key, _Written] = {}

    def batch(
        self, lats: Sequence[float], lons: Sequence[float], *, towns: bool = True
    ) -> list[bytes | ReverseResult]:
        """Return an answer for each point, or the result itself where it cannot be serialised here.

        Without `towns`, results with only a town are returned as results too, so that the caller
        can ask a fallback. Raises ValueError if one is not a point on earth.
        """
        streets = self.geocoder.streets
        if streets is None:
            return [
                self._of_world(result, towns) for result in self.geocoder.reverse_batch(lats, lons)
            ]
        lats, lons = array("d", lats), array("d", lons)
        objects, addresses, counted, metres, at_lats, at_lons = streets.find_batch(lats, lons)
        answers: list[bytes | ReverseResult] = []
        for place, (key, far, lat, lon) in enumerate(
            zip(
                zip(objects, addresses, counted, strict=True), metres, at_lats, at_lons, strict=True
            )
        ):
            if key[0] < 0:
                answers.append(
                    self._of_world(self.geocoder.reverse(lats[place], lons[place]), towns)
                )
                continue
            parts = self._written.get(key) or self._from_older(key)
            if parts is None:
                parts = self._write(key, streets.place(*key))
            before, between, behind = parts
            answers.append(
                b'%b"lat":"%.7f","lon":"%.7f"%b%.1f%b' % (before, lat, lon, between, far, behind)
            )
        return answers

    def _of_world(self, result: ReverseResult, towns: bool) -> bytes | ReverseResult:
        """Serialise a town like a street; return a result whose place has no point of its own."""
        place = result.place
        if (
            place is None
            or not (towns or place.osm_type is not None)
            or result.distance is None
            or place.lat is None
            or place.lon is None
        ):
            return result
        key = (place.place_id, place.type, place.osm_type)
        parts = self._written.get(key) or self._from_older(key) or self._write(key, place)
        before, between, behind = parts
        return b'%b"lat":"%.7f","lon":"%.7f"%b%.1f%b' % (
            before,
            place.lat,
            place.lon,
            between,
            result.distance,
            behind,
        )

    def _write(self, key: _Key, place: Place) -> _Written:
        result = ReverseResult(
            lat=0.0,
            lon=0.0,
            place=place,
            distance=0.0,
            index_version=self.geocoder.index_version,
        )
        members = answer(result)
        names = list(members)
        point, distance = names.index("lat"), names.index("distance")
        before = _encode({name: members[name] for name in names[:point]})[:-1] + b","
        between = _encode({name: members[name] for name in names[point + 2 : distance]})[1:-1]
        behind = _encode({name: members[name] for name in names[distance + 1 :]})[1:]
        parts = before, b"," + between + b',"distance":', b"," + behind
        self._keep(key, parts)
        return parts

    def _from_older(self, key: _Key) -> _Written | None:
        parts = self._older.get(key)
        if parts is not None:
            self._keep(key, parts)
        return parts

    def _keep(self, key: _Key, parts: _Written) -> None:
        if len(self._written) >= _PLACES_MAX:
            self._older, self._written = self._written, {}
        self._written[key] = parts
