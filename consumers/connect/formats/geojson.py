"""GeoJSON (RFC 7946): a collection of points, each with its properties."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.positions import WholePosition, iso_time
from consumers.connect.formats.track_format import TrackLine, id_of
from waylog.malformed import MALFORMED

_MEASURED: Final = ("accuracy", "altitude", "vertical_accuracy", "speed", "course", "battery",
                    "charging", "trigger", "attributes")  # fmt: skip


class _Properties(msgspec.Struct):
    time: str


class _Feature(msgspec.Struct):
    id: str
    properties: _Properties


_decoder: Final = msgspec.json.Decoder(_Feature)


class GeoJson:
    """The format."""

    suffix = ".geojson"
    separator = ","

    def head(self, device: str) -> str:
        """See TrackFormat."""
        return '{"type":"FeatureCollection","features":['

    def tail(self) -> str:
        """See TrackFormat."""
        return "]}\n"

    def line(self, position: WholePosition) -> TrackLine:
        """See TrackFormat."""
        time, name = iso_time(position.time), id_of(position)
        coordinates = [position.lon, position.lat]
        if position.altitude is not None:
            coordinates.append(position.altitude)
        properties: dict[str, Any] = {"device": position.device, "time": time}
        for each in _MEASURED:
            value = getattr(position, each)
            if value is not None:
                properties[each] = value
        feature = {
            "type": "Feature",
            "id": name,
            "geometry": {"type": "Point", "coordinates": coordinates},
            "properties": properties,
        }
        try:
            return TrackLine(time, name, msgspec.json.encode(feature).decode())
        except MALFORMED as error:
            raise DataException(f"there is no JSON of the record: {error}") from error

    def read(self, text: str) -> TrackLine | None:
        """See TrackFormat."""
        try:
            feature = _decoder.decode(text)
        except MALFORMED:
            return None
        return TrackLine(feature.properties.time, feature.id, text)
