"""Forward search: the places that a text names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from geoservice.reverse.geocoder import Place
from geoservice.search.matching import Match, Matching, parse_question
from geoservice.search.query import Query, SearchLayer
from geoservice.search.words import all_forms, plain

_RANK_SUBURB: Final = 22

#: Nominatim's layers by key of the main tag; all other places are points of interest.
_LAYERS: Final = dict.fromkeys(("highway", "place", "boundary", "building"), "address") | {
    "railway": "railway",
    "natural": "natural",
    "man_made": "manmade",
}


def search(layers: Sequence[SearchLayer], query: Query) -> list[Place]:
    """Return the places that match, best first, at most as many as the limit."""
    asked = parse_question(query)
    if not any(word.may_name and not word.is_little for word in asked.words):
        return []
    matches: list[Match] = []
    for layer in layers:
        matches += Matching(layer, query, asked).matches()
    matches.sort(key=lambda match: -match.score)
    return _first(matches, query, _postcodes(layers, query))


def _postcodes(layers: Sequence[SearchLayer], query: Query) -> list[Place]:
    """Return the areas of a postcode, if the query is only that, with or without a country."""
    text = query.text.strip()
    if query.structured is not None:
        parts = query.structured
        text = parts.postalcode.strip()
        if parts.amenity or parts.street or parts.city or parts.county:
            return []
    if not text or query.ranks is not None or not _is_in_layers(None, query.layers):
        return []
    places = [place for layer in layers for place in layer.postcodes(text, query.languages)]
    if query.structured is not None and query.structured.country:
        wanted = all_forms([query.structured.country])
        places = [place for place in places if wanted & all_forms(place.address.values())]
    return places


def _first(matches: Sequence[Match], query: Query, places: list[Place]) -> list[Place]:
    if query.countries:
        places = [place for place in places if place.address.get("country_code") in query.countries]
    places = places[: query.limit]
    seen: set[Any] = set()
    towns: set[tuple[str, str]] = set()  # those found in an extract
    for match in matches:
        if len(places) >= query.limit:
            break
        place: Place = match.layer.place(match.number, query.languages, match.house)
        if not query.excluded.isdisjoint(_ids(place)) or not _is_in_layers(place, query.layers):
            continue
        if query.countries and place.address.get("country_code") not in query.countries:
            continue
        if query.dedupe:
            # Several segments of one street are one result.
            key = (place.category, place.type, place.display_name, place.address_rank)
            if key in seen:
                continue
            seen.add(key)
            town = plain(place.name), place.address.get("country_code", "")
            if place.osm_type is not None:
                if place.address_rank <= _RANK_SUBURB:
                    towns.add(town)
            elif town in towns:
                # Skip it: the world index knows less about the same town.
                continue
        places.append(place)
    return places


def _ids(place: Place) -> tuple[str, ...]:
    if place.osm_type is None:
        return (str(place.place_id),)
    return str(place.place_id), f"{place.osm_type[0].upper()}{place.osm_id}"


def _is_in_layers(place: Place | None, layers: frozenset[str] | None) -> bool:
    if layers is None:
        return True
    if place is None:
        return "address" in layers
    of_place = {_LAYERS.get(place.category, "poi")}
    if "house_number" in place.address:
        of_place.add("address")
    return not layers.isdisjoint(of_place)
