"""Addresses of many points, serialised as members of records of topic `address`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from geoservice.index.address_json import AddressWriter, TownWriter
from geoservice.index.world_layer import doubles
from geoservice.reverse.geocoder import TOWN_DISTANCE_M_MAX, Geocoder, ReverseResult

#: Entries in each of the two caches of serialised addresses; each takes some 250 bytes.
_PLACES_MAX: Final = 32_000

_encode = msgspec.json.Encoder().encode


class AddressBytes:
    """A writer of `"display_name":...,"address":{...}` and, if known, `,"distance":...` of points.

    For use by one thread. The content is the same as that of `Geocoder.reverse_batch`.
    """

    def __init__(self, geocoder: Geocoder) -> None:
        self.geocoder = geocoder
        index = geocoder.index.streets
        self._writer = None if index is None else AddressWriter(index)
        self._of_places: dict[int, bytes] = {}
        self._towns = TownWriter(_PLACES_MAX)

    def batch(self, lats: Sequence[float], lons: Sequence[float]) -> list[bytes]:
        """Return the members of each point; raises ValueError if one is not a point on earth."""
        lats, lons = doubles(lats), doubles(lons)
        streets = self.geocoder.streets
        if streets is None or self._writer is None:
            return self._of_world(lats, lons)
        objects, tails, numbers, metres, _, _ = streets.find_batch(lats, lons)
        written = self._writer.write(objects, tails, numbers, metres)
        beyond = [place for place, number in enumerate(objects) if number < 0]
        if beyond:
            results = self.geocoder.reverse_batch(
                array("d", [lats[place] for place in beyond]),
                array("d", [lons[place] for place in beyond]),
            )
            for place, result in zip(beyond, results, strict=True):
                written[place] = self.of_result(result)
        return written  # type: ignore[return-value]

    def _of_world(self, lats: Sequence[float], lons: Sequence[float]) -> list[bytes]:
        towns, _, metres = self.geocoder.index.world.reverse_batch(lats, lons)
        written, missing = self._towns.write(towns, metres, TOWN_DISTANCE_M_MAX)
        for place in missing:
            result = self.geocoder.reverse(lats[place], lons[place])
            members = _without_distance(result)
            if result.distance is not None:
                self._towns.keep(towns[place], members)
            written[place] = _with_distance(members, result.distance)
        return written  # type: ignore[return-value]

    def of_result(self, result: ReverseResult) -> bytes:
        """Return the members of a result, from the cache if it is a town."""
        place = result.place
        if place is None or place.osm_type is not None or not place.place_id:
            return members_of(result)
        members = self._of_places.get(place.place_id)
        if members is None:
            if len(self._of_places) >= _PLACES_MAX:
                self._of_places.clear()
            members = self._of_places[place.place_id] = _without_distance(result)
        return _with_distance(members, result.distance)


def members_of(result: ReverseResult) -> bytes:
    """Return the members of a result of any source."""
    return _with_distance(_without_distance(result), result.distance)


def _without_distance(result: ReverseResult) -> bytes:
    return _encode({"display_name": result.display_name, "address": result.address})[1:-1]


def _with_distance(members: bytes, distance: float | None) -> bytes:
    return members if distance is None else b'%b,"distance":%.1f' % (members, distance)
