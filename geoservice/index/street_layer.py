"""Places and addresses of a street index, made from the numbers that the kernel finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from geoservice.index import street_format as sections
from geoservice.index.display_names import display_name
from geoservice.index.node_boxes import box_around
from geoservice.index.places import DEFAULT_LAYERS, ZOOM_MAX, AddressRow, Place, ReverseResult
from geoservice.index.store import IndexFile
from geoservice.index.streets import StreetIndex

#: The finest Nominatim rank that is answered at each zoom.
_RANK_BY_ZOOM: Final = (2, 2, 2, 4, 4, 8, 10, 10, 12, 12, 16, 17, 18, 19, 22, 25, 26, 27, 30)

_LAYER_BITS: Final = {
    "address": sections.LAYER_STREET | sections.LAYER_PATH | sections.LAYER_HOUSE,
    "poi": sections.LAYER_POI,
    "railway": sections.LAYER_RAILWAY,
    "natural": sections.LAYER_NATURAL,
    "manmade": sections.LAYER_MANMADE,
}

_OSM_TYPES: Final = ("node", "way", "relation")
_WIDTH: Final = len(sections.OBJECT_COLUMNS)
_TAIL_WIDTH: Final = len(sections.TAIL_COLUMNS)

#: Number of places in the cache; each takes about a kilobyte.
_PLACES_MAX: Final = 8_000

_Found = tuple[int, int, int]  # object, tail, interpolated number or -1


class _Row(msgspec.Struct, frozen=True, gc=False):
    """One row of the objects section, with named columns."""

    osm_low: int
    osm_high: int
    kind: int
    names: int
    parent: int
    number: int
    unlisted: int
    tail: int
    lon: int
    lat: int
    ranks: int
    text: int

    @property
    def osm_key(self) -> int:
        """The OSM number times 4, plus the type."""
        return (self.osm_high << 32) | (self.osm_low & 0xFFFFFFFF)

    @property
    def rank_search(self) -> int:
        """Nominatim's rank_search."""
        return self.ranks & 0xFF

    @property
    def rank_address(self) -> int:
        """Nominatim's rank_address."""
        return self.ranks >> 8 & 0xFF

    @property
    def flags(self) -> int:
        """The FLAG_* bits of street_format."""
        return self.ranks >> 16


class StreetLayer:
    """A layer that answers which street, house or area a point is at."""

    def __init__(
        self,
        index: IndexFile,
        version: str,
        town: Callable[[float, float], Place | None],
    ) -> None:
        """Open the layer; `town` returns the place that the world index has for a point."""
        self._town = town
        self._bounds = [tuple(box) for box in index.meta.get("bounds", ())]
        assert index.streets is not None
        self._index = index
        self._streets: StreetIndex = index.streets
        self._version = version
        integers = index.integers
        self._objects = integers(sections.OBJECTS)
        self._boxes = integers(sections.BOXES)
        self._kinds = integers(sections.KINDS)
        self._tails = integers(sections.TAILS)
        self._tail_lines = integers(sections.TAIL_LINES)
        self._tail_texts = index.section(sections.TAIL_TEXTS)
        self._name_ends = integers(sections.NAME_ENDS)
        self._names = integers(sections.NAMES)
        self._extras = integers(sections.EXTRAS)
        self._countries = integers(sections.COUNTRIES)
        self._order = integers(sections.OBJECT_ORDER)
        self._places: dict[tuple[int, int, int, tuple[str, ...]], Place] = {}

    @property
    def object_count(self) -> int:
        """The number of objects."""
        return self._streets.object_count

    def reverse(
        self,
        lat: float,
        lon: float,
        zoom: int,
        layers: frozenset[str],
        degrees: bool,
        languages: tuple[str, ...],
    ) -> ReverseResult | None:
        """Return the answer for a point, or None; raises ValueError for a point not on earth."""
        number, tail, counted, metres, at_lat, at_lon = self._streets.reverse(
            lat, lon, _layer_bits(layers), rank_by_zoom(zoom), degrees
        )
        if number < 0:
            return self._outside(lat, lon, zoom, layers, degrees, languages)
        return self._result(lat, lon, (number, tail, counted), metres, at_lat, at_lon, languages)

    def reverse_batch(
        self,
        lats: Sequence[float],
        lons: Sequence[float],
        zoom: int,
        layers: frozenset[str],
        degrees: bool,
        languages: tuple[str, ...],
    ) -> list[ReverseResult | None]:
        """Return the answers for many points."""
        found = self._streets.reverse_batch(
            lats, lons, _layer_bits(layers), rank_by_zoom(zoom), degrees
        )
        return [
            self._outside(lat, lon, zoom, layers, degrees, languages)
            if number < 0
            else self._result(lat, lon, (number, tail, counted), metres, at_lat, at_lon, languages)
            for lat, lon, number, tail, counted, metres, at_lat, at_lon in zip(
                lats, lons, *found, strict=True
            )
        ]

    def find_batch(self, lats: Any, lons: Any) -> tuple[Any, ...]:
        """Find the objects at many points, as `reverse_batch` does without options.

        Returns arrays of: the object (-1 where no street or area is found), its address tail, the
        house number on an interpolation line (-1 if there is none), the distance in metres, and
        latitude and longitude of the nearest point of the object. `place` makes a Place from the
        first three.
        """
        return self._streets.reverse_batch(
            lats, lons, _layer_bits(DEFAULT_LAYERS), rank_by_zoom(ZOOM_MAX), False
        )

    def _outside(
        self,
        lat: float,
        lon: float,
        zoom: int,
        layers: frozenset[str],
        degrees: bool,
        languages: tuple[str, ...],
    ) -> ReverseResult | None:
        """Answer a point that is near no street and in no area: at sea, or beyond the extract.

        A settlement that reaches the point is answered only within the bounding box of an extract
        and in the same country. Elsewhere the nearest settlement may lie in a part that was not
        imported.
        """
        if "address" not in layers or not any(
            south <= lat <= north and west <= lon <= east
            for west, south, east, north in self._bounds
        ):
            return None
        number, metres = self._streets.nearest_settlement(lat, lon, rank_by_zoom(zoom), degrees)
        if number < 0:
            return None
        row = self._row(number)
        country = self._tail_row(row.tail)[2]
        town = self._town(lat, lon)
        if (
            country < 0
            or town is None
            or self._index.string(self._countries[2 * country]) != town.address.get("country_code")
        ):
            return None
        at = (row.lat / 1e7, row.lon / 1e7)
        return self._result(lat, lon, (number, row.tail, -1), metres, *at, languages)

    def _result(
        self,
        lat: float,
        lon: float,
        found: _Found,
        metres: float,
        at_lat: float,
        at_lon: float,
        languages: tuple[str, ...],
    ) -> ReverseResult:
        key = (*found, languages)
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= _PLACES_MAX:
                self._places.clear()
            place = self._places[key] = self.place(*found, languages)
        # A street is answered with its point nearest to the query, which differs for each query.
        if round(at_lat * 1e7) != round((place.lat or 0.0) * 1e7) or round(at_lon * 1e7) != round(
            (place.lon or 0.0) * 1e7
        ):
            place = msgspec.structs.replace(place, lat=round(at_lat, 7), lon=round(at_lon, 7))
        return ReverseResult(
            lat=lat, lon=lon, place=place, distance=round(metres, 1), index_version=self._version
        )

    def _row(self, number: int) -> _Row:
        return _Row(*self._objects[number * _WIDTH : (number + 1) * _WIDTH])

    def place(
        self, number: int, tail: int = -1, counted: int = -1, languages: tuple[str, ...] = ()
    ) -> Place:
        """Return an object with its address; raises IndexError for an unknown object.

        `tail` is the address tail of a part of a street, `counted` an interpolated house number.
        """
        if not 0 <= number < self.object_count:
            raise IndexError(number)
        row = self._row(number)
        category, type_, label = self._kind(row.kind)
        address: dict[str, str] = {}
        shown: list[str] = []
        for key, name in self._head(row, label, counted, languages):
            address.setdefault(key, name)
            shown.append(name)
        tail = row.tail if tail < 0 else tail
        areas = ""
        if languages:
            self._localized_tail(tail, languages, address, shown)
        else:
            members, areas = self._tail(tail)
            address |= {key: name for key, name in members.items() if key not in address}
        lon, lat = row.lon / 1e7, row.lat / 1e7
        town = self._town(lat, lon)
        return Place(
            place_id=number + 1,
            type=type_,
            name=self._own_name(row, languages),
            display_name=_join(shown, areas),
            address=address,
            timezone=town.timezone if town is not None else None,
            lat=lat,
            lon=lon,
            category=category,
            addresstype=label,
            place_rank=row.rank_search,
            address_rank=row.rank_address,
            importance=max(0.0, 0.40001 - row.rank_search / 75.0),
            osm_type=_OSM_TYPES[row.osm_key & 3],
            osm_id=row.osm_key >> 2,
            boundingbox=self._box(number, row, category, type_),
        )

    def _kind(self, number: int) -> tuple[str, str, str]:
        category, type_, label = self._kinds[3 * number : 3 * number + 3]
        string = self._index.string
        return string(category), string(type_), string(label)

    def _head(
        self, row: _Row, label: str, counted: int, languages: tuple[str, ...]
    ) -> Iterator[tuple[str, str]]:
        """Yield key and name of the address lines before the areas."""
        if not row.flags & sections.FLAG_IN_TAIL:
            name = self._own_name(row, languages)
            if name:
                yield label, name
        if counted >= 0:
            yield "house_number", str(counted)
        elif row.number >= 0:
            yield "house_number", self._index.string(row.number)
        if row.parent >= 0:
            parent = self._row(row.parent)
            if not parent.flags & sections.FLAG_IN_TAIL:
                name = self._own_name(parent, languages)
                if name:
                    yield "road", name
        if row.unlisted >= 0:
            yield "locality", self._index.string(row.unlisted)

    def _own_name(self, row: _Row, languages: tuple[str, ...]) -> str:
        if languages and row.names >= 0:
            return display_name(self._name_set(row.names), languages)
        return self._index.string(row.text) if row.text >= 0 else ""

    def _name_set(self, number: int) -> dict[str, str]:
        if number < 0:
            return {}
        first = self._name_ends[number - 1] if number else 0
        pairs = self._names[2 * first : 2 * self._name_ends[number]].tolist()
        string = self._index.string
        return {
            string(key): string(name) for key, name in zip(pairs[::2], pairs[1::2], strict=True)
        }

    def _tail(self, number: int) -> tuple[dict[str, str], str]:
        first, display = self._tails[_TAIL_WIDTH * number + 3 : _TAIL_WIDTH * number + 5]
        end = self._tails[_TAIL_WIDTH * (number + 1) + 3]
        members = bytes(self._tail_texts[first:display])
        shown = bytes(self._tail_texts[display:end])
        return (
            msgspec.json.decode(b"{" + members + b"}", type=dict[str, str]),
            msgspec.json.decode(b'"' + shown + b'"', type=str),
        )

    def _tail_row(self, number: int) -> tuple[list[int], str | None, int]:
        """Return (areas, postcode, country) of an address tail."""
        at = _TAIL_WIDTH * number
        first, postcode, country = self._tails[at : at + 3]
        end = self._tails[at + _TAIL_WIDTH]
        text = self._index.string(postcode) if postcode >= 0 else None
        return self._tail_lines[first:end].tolist(), text, country

    def _localized_tail(
        self,
        number: int,
        languages: tuple[str, ...],
        address: dict[str, str],
        shown: list[str],
    ) -> None:
        areas, postcode, country = self._tail_row(number)
        for area in areas:
            row = self._row(area)
            label = self._kind(row.kind)[2]
            name = self._own_name(row, languages)
            if name:
                address.setdefault(label, name)
                shown.append(name)
            if row.names >= 0:
                names = self._name_set(row.names)
                if "ISO3166-2" in names:
                    level = self._extra(area).get("admin_level", "15")
                    address[f"ISO3166-2-lvl{level}"] = names["ISO3166-2"]
        if postcode is not None:
            address.setdefault("postcode", postcode)
            shown.append(postcode)
        if country >= 0:
            code, names_number = self._countries[2 * country : 2 * country + 2]
            name = display_name(self._name_set(names_number), languages)
            if name:
                address.setdefault("country", name)
                shown.append(name)
            address["country_code"] = self._index.string(code)

    def _box(
        self, number: int, row: _Row, category: str, type_: str
    ) -> tuple[float, float, float, float]:
        if row.flags & sections.FLAG_NODE:
            lon, lat = row.lon / 1e7, row.lat / 1e7
            return box_around(lat, lon, category, type_)
        west, south, east, north = self._boxes[4 * number : 4 * number + 4]
        return south / 1e7, north / 1e7, west / 1e7, east / 1e7

    def _extra(self, number: int) -> Mapping[str, str]:
        low, high = 0, len(self._extras) // 2
        while low < high:
            middle = (low + high) // 2
            if self._extras[2 * middle] < number:
                low = middle + 1
            else:
                high = middle
        if 2 * low < len(self._extras) and self._extras[2 * low] == number:
            return self._name_set(self._extras[2 * low + 1])
        return {}

    # -- details ---------------------------------------------------------------------------------

    def names(self, place: Place) -> dict[str, str]:
        """Return all names of a place."""
        return {
            key.removeprefix("_place_"): name
            for key, name in self._name_set(self._row(place.place_id - 1).names).items()
        }

    def country_name(self, code: str, languages: tuple[str, ...]) -> str | None:
        """Return the name of a country, or None if no address of the extracts is in it."""
        for at in range(0, len(self._countries), 2):
            if self._index.string(self._countries[at]) == code:
                return display_name(self._name_set(self._countries[at + 1]), languages) or None
        return None

    def all_names(self, number: int) -> set[str]:
        """Return all names of an object, in all languages."""
        row = self._row(number)
        names = {name for key, name in self._name_set(row.names).items() if "ISO" not in key}
        if row.text >= 0:
            names.add(self._index.string(row.text))
        return names

    def extratags(self, place: Place) -> dict[str, str]:
        """Return the tags of a place other than its names and main tag."""
        tags = dict(self._extra(place.place_id - 1))
        if tags.get("admin_level") == "15":
            del tags["admin_level"]
        return tags

    def address_rows(self, place: Place, languages: tuple[str, ...]) -> list[AddressRow]:
        """Return the address of a place line by line, the finest first."""
        row = self._row(place.place_id - 1)
        label = self._kind(row.kind)[2]
        ranks = {"house_number": 28, "road": 26, "locality": 25, label: row.rank_address}
        rows = [
            AddressRow(key=key, name=name, address_rank=ranks[key])
            for key, name in self._head(row, label, -1, languages)
        ]
        areas, postcode, country = self._tail_row(row.tail)
        for area in areas:
            area_row = self._row(area)
            level = self._extra(area).get("admin_level")
            name = self._own_name(area_row, languages)
            if name:
                rows.append(
                    AddressRow(
                        key=self._kind(area_row.kind)[2],
                        name=name,
                        address_rank=area_row.rank_address,
                        admin_level=int(level) if level is not None else None,
                    )
                )
        if postcode is not None:
            rows.append(AddressRow(key="postcode", name=postcode, address_rank=5))
        if country >= 0:
            names = self._name_set(self._countries[2 * country + 1])
            name = display_name(names, languages)
            rows.append(AddressRow(key="country", name=name, address_rank=4))
        return rows

    def lookup(self, osm_type: str, osm_id: int, languages: tuple[str, ...]) -> list[Place]:
        """Return the places that an OSM object is stored as."""
        if osm_type not in _OSM_TYPES or not 0 < osm_id < 1 << 60:
            return []
        key = osm_id * 4 + _OSM_TYPES.index(osm_type)
        low, high = 0, len(self._order)
        while low < high:
            middle = (low + high) // 2
            if self._row(self._order[middle]).osm_key < key:
                low = middle + 1
            else:
                high = middle
        found: list[Place] = []
        while low < len(self._order) and self._row(self._order[low]).osm_key == key:
            found.append(self.place(self._order[low], languages=languages))
            low += 1
        return found


def rank_by_zoom(zoom: int) -> int:
    """Return the finest rank that is answered at a zoom from 0 to 18."""
    return _RANK_BY_ZOOM[max(0, min(18, zoom))]


def _layer_bits(layers: frozenset[str]) -> int:
    bits = 0
    for layer in layers:
        bits |= _LAYER_BITS[layer]
    return bits


def _join(names: Sequence[str], areas: str) -> str:
    """Join names and the line `areas`, dropping a name that repeats the one before it."""
    different = [name for n, name in enumerate(names) if not n or names[n - 1] != name]
    if different and (areas == different[-1] or areas.startswith(different[-1] + ", ")):
        del different[-1]
    if areas:
        different.append(areas)
    return ", ".join(different)
