"""The comparison of an index with the answers of a real Nominatim, member by member.

A truth file has one JSON object per line: `lat`, `lon`, `kind` (how the point was chosen), `result`
(Nominatim's jsonv2 answer) and `address_layer` (the same with layer=address only).
"""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from geoservice.index.places import DEFAULT_LAYERS
from geoservice.reverse.geocoder import Geocoder

_ADDRESS: Final = frozenset({"address"})

#: The fields that are compared, and the members of an address that hold each of them.
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "country": ("country_code",),
    "city": ("city", "town", "village"),
    "suburb": ("suburb", "hamlet", "neighbourhood", "quarter", "city_district", "borough"),
    "road": ("road",),
    "house number": ("house_number",),
    "postcode": ("postcode",),
}


@dataclass
class Agreement:
    """Counts by field and kind of point, over the points where at least one side has a value."""

    compared: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    agreed: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    misses: list[Miss] = field(default_factory=list)

    def add(self, name: str, kind: str, same: bool) -> None:
        """Count one comparison."""
        for group in (kind, "all"):
            self.compared[name][group] += 1
            self.agreed[name][group] += same

    def percent(self, name: str, kind: str = "all") -> float | None:
        """Return the share that agrees, in percent; None if nothing was compared."""
        compared = self.compared[name][kind]
        return 100.0 * self.agreed[name][kind] / compared if compared else None

    def rows(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield (field, kind, agreed, compared)."""
        for name, counts in self.compared.items():
            for kind in sorted(counts):
                yield name, kind, self.agreed[name][kind], counts[kind]


@dataclass(frozen=True)
class Miss:
    """One point whose answer differs."""

    lat: float
    lon: float
    kind: str
    fields: tuple[str, ...]
    reason: str
    theirs: str
    ours: str


def read_truth(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a truth file, gzipped or not; raises OSError and msgspec.DecodeError."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as lines:
        for line in lines:
            if line.strip():
                yield msgspec.json.decode(line)


def compare(
    geocoder: Geocoder,
    points: Iterable[Mapping[str, Any]],
    *,
    distance: str = "degrees",
    address_only: bool = True,
) -> Agreement:
    """Look each point up and compare the answer with Nominatim's."""
    agreement = Agreement()
    layers = _ADDRESS if address_only else DEFAULT_LAYERS
    for point in points:
        theirs = point["address_layer" if address_only else "result"]
        if not theirs or "error" in theirs:
            continue
        lat, lon, kind = point["lat"], point["lon"], point["kind"]
        ours = geocoder.reverse(lat, lon, layers=layers, distance=distance)
        place = ours.place
        # A country beyond the extract has no OSM object, neither here nor in Nominatim.
        same_object = (
            place is not None
            and place.osm_type == theirs.get("osm_type")
            and place.osm_id == theirs.get("osm_id")
        )
        agreement.add("same object", kind, same_object)
        missed: list[str] = []
        for name, keys in FIELDS.items():
            wanted = _values(theirs["address"], keys)
            found = _values(ours.address, keys)
            if wanted or found:
                agreement.add(name, kind, wanted == found)
                if wanted != found:
                    missed.append(name)
        agreement.add("display name", kind, ours.display_name == theirs.get("display_name"))
        if missed:
            reason = _reason(same_object, theirs, place)
            agreement.misses.append(
                Miss(
                    lat, lon, kind, tuple(missed), reason,
                    f"{_name(theirs)} {theirs.get('display_name')}",
                    f"{_our_name(place)} {ours.display_name}",
                )
            )  # fmt: skip
    return agreement


def _values(address: Mapping[str, str], keys: Iterable[str]) -> tuple[str, ...]:
    # Only names are compared, not whether a place is called town or village.
    return tuple(address[key] for key in keys if key in address)


def _name(answer: Mapping[str, Any]) -> str:
    return (
        f"{answer.get('osm_type')}/{answer.get('osm_id')} "
        f"{answer.get('category')}={answer.get('type')}"
    )


def _our_name(place: Any) -> str:
    if place is None:
        return "nothing"
    return f"{place.osm_type}/{place.osm_id} {place.category}={place.type}"


def _reason(same_object: bool, theirs: Mapping[str, Any], place: Any) -> str:
    """Return a rough reason for a miss."""
    if place is None or place.osm_type is None:
        return "beyond the extract, the world answers"
    if same_object:
        return "same object, other address"
    if theirs.get("category") == place.category:
        return f"another {place.category}"
    return f"{theirs.get('category')} against {place.category}"
