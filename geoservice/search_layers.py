"""Which parts of an index can be searched."""

from __future__ import annotations

import contextlib

from geoservice.format import IndexFormatError
from geoservice.reverse import Geocoder
from geoservice.search_query import SearchLayer
from geoservice.search_streets import StreetSearch
from geoservice.search_world import WorldLayer


def open_layers(geocoder: Geocoder) -> list[SearchLayer]:
    """The searchable layers, the finest first; those built without the search are left out."""
    layers: list[SearchLayer] = []
    with contextlib.suppress(IndexFormatError):
        layers.append(StreetSearch(geocoder))
    with contextlib.suppress(IndexFormatError):
        layers.append(WorldLayer(geocoder))
    return layers
