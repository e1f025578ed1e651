"""Query parameters, parsed and rejected with Nominatim's messages."""

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

#: Parameters of Nominatim that are rejected, because ignoring them would give wrong answers.
_UNSUPPORTED: Final = {
    "json_callback": "Parameter 'json_callback' is not supported.",
    "polygon_kml": "Parameter 'polygon_kml' is not supported; use polygon_geojson.",
    "polygon_svg": "Parameter 'polygon_svg' is not supported; use polygon_geojson.",
    "polygon_text": "Parameter 'polygon_text' is not supported; use polygon_geojson.",
}


class BadRequest(Exception):
    """The request is invalid; the message says why."""


def parse_query(text: str) -> dict[str, str]:
    """Parse the parameters of a query string; the last one of the same name wins.

    Raises BadRequest.
    """
    if text.count("&") >= _PARAMETERS_MAX:
        raise BadRequest(f"At most {_PARAMETERS_MAX} parameters.")
    if "%" in text or "+" in text:
        return dict(parse_qsl(text, keep_blank_values=True))
    # Six times as fast as parse_qsl.
    pairs = (part.partition("=") for part in text.split("&") if part)
    return {name: value for name, _, value in pairs}


class Parameters:
    """The parameters of one request."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def are_plain(self) -> bool:
        """Return whether they are only a point, a format, and options with their default values."""
        return all(
            name in _WHERE or (name, value) in _DEFAULTS for name, value in self._values.items()
        )

    def text(self, name: str) -> str | None:
        """Return a parameter as it was sent, or None."""
        return self._values.get(name)

    def integer(self, name: str, default: int) -> int:
        """Return an integer; raises BadRequest."""
        value = self._values.get(name)
        if value is None:
            return default
        try:
            # Python refuses to parse thousands of digits, also with a ValueError.
            return int(value)
        except ValueError:
            raise BadRequest(f"Parameter '{name}' must be a number.") from None

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number; raises BadRequest, also if it is missing and has no default."""
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
        """Return a flag; every value but "0" is true."""
        value = self._values.get(name)
        return default if value is None else value != "0"

    def zoom(self) -> int:
        """Return the level of detail, clamped to 0..18."""
        return max(0, min(ZOOM_MAX, self.integer("zoom", ZOOM_MAX)))

    def layers(self) -> frozenset[str] | None:
        """Return the wanted layers, None if not specified; raises BadRequest."""
        names = [name.strip() for name in (self._values.get("layer") or "").split(",")]
        layers = frozenset(name.lower() for name in names if name)
        if not layers <= LAYERS:
            raise BadRequest(
                "Parameter 'layer' must be a comma-separated list of: " + ", ".join(_LAYER_NAMES)
            )
        return layers or None

    def photon_details(self, accept_language: str | None) -> Details:
        """Return the details with the languages of Photon's parameter `lang`."""
        wanted = self._values.get("lang") or accept_language or ""
        return Details(languages=parse_languages(wanted if wanted != "default" else ""))

    def details(self, accept_language: str | None, *, addressdetails: bool = True) -> Details:
        """Return the requested details; raises BadRequest for unsupported parameters."""
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
