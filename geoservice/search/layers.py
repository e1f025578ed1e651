"""The parts of an index that can be searched."""

from __future__ import annotations

import contextlib

from geoservice.index.format import IndexFormatError
from geoservice.reverse.geocoder import Geocoder
from geoservice.search.query import SearchLayer
from geoservice.search.streets import StreetSearch
from geoservice.search.world import WorldLayer


def open_layers(geocoder: Geocoder) -> list[SearchLayer]:
    """Return the searchable layers, the finest first, without those built without the search."""
    layers: list[SearchLayer] = []
    with contextlib.suppress(IndexFormatError):
        layers.append(StreetSearch(geocoder))
    with contextlib.suppress(IndexFormatError):
        layers.append(WorldLayer(geocoder))
    return layers
