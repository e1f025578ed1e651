"""What was found of a device, as rows of the tables of places, visits and trips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from spark.fixes.fixes import distances_m
from spark.places.finding import DevicePlaces
from spark.places.names import PlaceName, PlaceNames

#: Metres by which a place may have moved to keep its address.
_SAME_ADDRESS_M: Final = 25.0


def place_rows(
    device: str,
    found: DevicePlaces,
    names: PlaceNames,
    ids: Mapping[str, str] | None = None,
    older: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return rows of PLACES_SCHEMA, of which those that are in `older` keep their address.

    `ids` are other ids than those of the places.
    """
    known = {row["place_id"]: row for row in older}
    rows: list[dict[str, Any]] = []
    for rank, place in enumerate(found.places, start=1):
        identity = place.place_id if ids is None else ids[place.place_id]
        before = known.get(identity)
        if (
            before is not None
            and before["address"] is not None
            and before["named_by"] is None
            and distances_m(
                place.lat, place.lon, np.array([before["lat"]]), np.array([before["lon"]])
            )[0]
            <= _SAME_ADDRESS_M
        ):
            name = PlaceName(before["name"], before["address"])
        else:
            name = names.name_of(place.lat, place.lon)
        rows.append(
            {
                "user": device.partition("/")[0],
                "device": device,
                "place_id": identity,
                "lat": place.lat,
                "lon": place.lon,
                "label": place.label,
                "name": name.name,
                "visits": place.visits,
                "dwell_s": place.dwell_ms // 1000,
                "address": name.address,
                "rank": rank,
                "days": place.days,
                "radius_m": place.radius_m,
                "first": place.first,
                "last": place.last,
                "confidence": place.confidence,
                "profile": place.profile,
                "named_by": None,
                "roles": [role._asdict() for role in place.roles],
            }
        )
    return rows


def visit_rows(
    device: str, found: DevicePlaces, ids: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield rows of VISITS_SCHEMA; with `ids`, a place that is not among them has none."""
    for visit in found.visits:
        yield {
            "device": device,
            "arrival": visit.start,
            "departure": visit.end,
            "place_id": _id_of(visit.place_id, ids),
            "lat": visit.lat,
            "lon": visit.lon,
            "dwell_s": (visit.end - visit.start) // 1000,
            "silent_s": visit.silent_ms // 1000,
            "fixes": visit.fixes,
            "arrival_earliest": visit.arrival_earliest,
            "arrival_latest": visit.arrival_latest,
            "departure_earliest": visit.departure_earliest,
            "departure_latest": visit.departure_latest,
        }


def trip_rows(
    device: str, found: DevicePlaces, ids: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield rows of TRIPS_SCHEMA; with `ids`, a place that is not among them has none."""
    for trip in found.trips:
        yield {
            "device": device,
            "start": trip.start,
            "end": trip.end,
            "origin": _id_of(trip.origin, ids),
            "destination": _id_of(trip.destination, ids),
            "distance_m": trip.distance_m,
        }


def _id_of(place: str | None, ids: Mapping[str, str] | None) -> str | None:
    return place if ids is None or place is None else ids.get(place)
