"""Addresses of many points as the members of topic `address`, written out already."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from geoservice.address_json import AddressWriter
from geoservice.reverse import Geocoder, ReverseResult

#: Places of the world kept written; each is some 150 bytes.
_PLACES_MAX: Final = 8_000

_encode = msgspec.json.Encoder().encode


class AddressBytes:
    """Looks points up and writes `"display_name":...,"address":{...}` and, if any, `,"distance":`.

    For one thread. What it writes says the same as `Geocoder.reverse_batch`.
    """

    def __init__(self, geocoder: Geocoder) -> None:
        self.geocoder = geocoder
        index = geocoder.index.streets
        self._writer = None if index is None else AddressWriter(index)
        self._of_places: dict[int, bytes] = {}

    def batch(self, lats: Sequence[float], lons: Sequence[float]) -> list[bytes]:
        """The members for each point; raises ValueError when one is not a point on earth."""
        streets = self.geocoder.streets
        if streets is None or self._writer is None:
            return [self.of_result(each) for each in self.geocoder.reverse_batch(lats, lons)]
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

    def of_result(self, result: ReverseResult) -> bytes:
        """The members of an answer."""
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
    """The members of an answer, whoever gave it."""
    return _with_distance(_without_distance(result), result.distance)


def _without_distance(result: ReverseResult) -> bytes:
    return _encode({"display_name": result.display_name, "address": result.address})[1:-1]


def _with_distance(members: bytes, distance: float | None) -> bytes:
    return members if distance is None else b'%b,"distance":%.1f' % (members, distance)
