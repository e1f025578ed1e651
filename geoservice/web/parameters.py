"""Query parameters, read and refused in Nominatim's words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from geoservice.reverse.geocoder import LAYERS, ZOOM_MAX
from geoservice.web.formats.described import Details
from geoservice.web.languages import parse_languages

#: In Nominatim's order.
_LAYER_NAMES: Final = ("address", "poi", "railway", "natural", "manmade")
assert frozenset(_LAYER_NAMES) == LAYERS

_PARAMETERS_MAX: Final = 200
_WHERE: Final = frozenset({"lat", "lon", "format"})
_DEFAULTS: Final = frozenset({("zoom", "18"), ("addressdetails", "1")})

#: Parameters of Nominatim that we refuse rather than silently do something else.
_UNSUPPORTED: Final = {
    "json_callback": "Parameter 'json_callback' is not supported.",
    "polygon_kml": "Parameter 'polygon_kml' is not supported; use polygon_geojson.",
    "polygon_svg": "Parameter 'polygon_svg' is not supported; use polygon_geojson.",
    "polygon_text": "Parameter 'polygon_text' is not supported; use polygon_geojson.",
}


class BadRequest(Exception):
    """The request is wrong; the message says how."""


def parse_query(text: str) -> dict[str, str]:
    """The parameters of a query string; of one that is repeated the last counts.

    Raises BadRequest.
    """
    if text.count("&") >= _PARAMETERS_MAX:
        raise BadRequest(f"At most {_PARAMETERS_MAX} parameters.")
    if "%" in text or "+" in text:
        return dict(parse_qsl(text, keep_blank_values=True))
    # Six times as fast as the general way.
    pairs = (part.partition("=") for part in text.split("&") if part)
    return {name: value for name, _, value in pairs}


class Parameters:
    """The parameters of one request."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def are_plain(self) -> bool:
        """Do they say where, and ask for nothing that is not answered anyway?"""
        return all(
            name in _WHERE or (name, value) in _DEFAULTS for name, value in self._values.items()
        )

    def text(self, name: str) -> str | None:
        """As it was sent."""
        return self._values.get(name)

    def integer(self, name: str, default: int) -> int:
        """A whole number; raises BadRequest."""
        value = self._values.get(name)
        if value is None:
            return default
        try:
            # Python refuses to parse thousands of digits: a ValueError as well.
            return int(value)
        except ValueError:
            raise BadRequest(f"Parameter '{name}' must be a number.") from None

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number; raises BadRequest, also when it is missing without a default."""
        value = self._values.get(name)
        if value is None:
            if default is None:
                raise BadRequest(f"Parameter '{name}' missing.")
            return default
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise BadRequest(f"Parameter '{name}' must be a number.")
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        """Everything but "0" is yes."""
        value = self._values.get(name)
        return default if value is None else value != "0"

    def zoom(self) -> int:
        """How fine the answer shall be, 0..18; beyond is the nearest of these."""
        return max(0, min(ZOOM_MAX, self.integer("zoom", ZOOM_MAX)))

    def layers(self) -> frozenset[str] | None:
        """Which kinds of places; None when it is left open. Raises BadRequest."""
        names = [name.strip() for name in (self._values.get("layer") or "").split(",")]
        layers = frozenset(name.lower() for name in names if name)
        if not layers <= LAYERS:
            raise BadRequest(
                "Parameter 'layer' must be a comma-separated list of: " + ", ".join(_LAYER_NAMES)
            )
        return layers or None

    def photon_details(self, accept_language: str | None) -> Details:
        """What Photon's parameter `lang` says."""
        wanted = self._values.get("lang") or accept_language or ""
        return Details(languages=parse_languages(wanted if wanted != "default" else ""))

    def details(self, accept_language: str | None, *, addressdetails: bool = True) -> Details:
        """What to write; raises BadRequest for what we do not do."""
        for name, message in _UNSUPPORTED.items():
            if self._values.get(name, "0") != "0":
                raise BadRequest(message)
        if self._values.get("debug", "0") != "0":
            raise BadRequest("Debug output is not enabled on this server.")
        return Details(
            addressdetails=self.flag("addressdetails", default=addressdetails),
            extratags=self.flag("extratags", default=False),
            namedetails=self.flag("namedetails", default=False),
            entrances=self.flag("entrances", default=False),
            postal=self.flag("format_address", default=False),
            geojson=self.flag("polygon_geojson", default=False),
            geojson_threshold=self.number("polygon_threshold", 0.0),
            languages=parse_languages(self._values.get("accept-language") or accept_language or ""),
        )
