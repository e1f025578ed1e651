"""Which parts of an index can be searched."""

from __future__ import annotations

import contextlib

from geoservice.index.format import IndexFormatError
from geoservice.reverse.geocoder import Geocoder
from geoservice.search.query import SearchLayer
from geoservice.search.streets import StreetSearch
from geoservice.search.world import WorldLayer


def open_layers(geocoder: Geocoder) -> list[SearchLayer]:
    """The searchable layers, the finest first; those built without the search are left out."""
    layers: list[SearchLayer] = []
    with contextlib.suppress(IndexFormatError):
        layers.append(StreetSearch(geocoder))
    with contextlib.suppress(IndexFormatError):
        layers.append(WorldLayer(geocoder))
    return layers
