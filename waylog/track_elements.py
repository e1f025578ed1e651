"""Elements of track files that all our exports have in common, and that `waylog replay` reads back.

GPX, KML and GeoJSON have places, times and altitudes of their own. What a fix has beyond that is in
the extensions that each of these formats allows, under the names of `waylog.messages.Fix`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from xml.sax.saxutils import escape

#: The XML namespace of our own elements.
NAMESPACE: Final = "urn:waylog:fix"

#: Members of a fix beyond place, time and altitude, with the names of their lists in GeoJSON.
PLURALS: Final = {
    "speed": "speeds",
    "accuracy": "accuracies",
    "course": "courses",
    "vertical_accuracy": "vertical_accuracies",
    "battery": "batteries",
    "charging": "charging_states",
    "trigger": "triggers",
    "id": "ids",
    "attributes": "attributes",
}
#: Lists that a GeoJSON feature has even if none of its points has a value.
_ALWAYS: Final = ("speed", "accuracy")
#: In GPX these are in Garmin's TrackPointExtension, version 2.
_GARMIN: Final = ("speed", "course")

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: Latitude, longitude, and altitude in metres.
Place = tuple[float, float, float | None]
#: A list for each member; unknown values are None.
Columns = Mapping[str, Sequence[Any]]

GPX_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<gpx version="1.1" creator="Waylog" xmlns="http://www.topografix.com/GPX/1/1" '
    'xmlns:gpxtpx="http://www.garmin.com/xmlschemas/TrackPointExtension/v2" '
    f'xmlns:waylog="{NAMESPACE}">\n'
)
_KML_FIELDS: Final = "".join(
    f'<gx:SimpleArrayField name="{name}" type="{kind}"/>'
    for name, kind in (
        *((name, "float") for name in ("speed", "accuracy", "course", "vertical_accuracy")),
        *(("battery", "float"), ("charging", "bool")),
        *((name, "string") for name in ("trigger", "id", "attributes")),
    )
)
KML_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<kml xmlns="http://www.opengis.net/kml/2.2" '
    'xmlns:gx="http://www.google.com/kml/ext/2.2"><Document>\n'
    f'<Schema id="fix">{_KML_FIELDS}</Schema>\n'
)


def xml_text(text: str) -> str:
    """Return text as XML has it; a character that XML cannot have is replaced."""
    return escape(_NOT_XML.sub("\ufffd", text))


def number_text(value: float) -> str:
    """Return the shortest decimal text of a number, without an exponent."""
    text = repr(float(value)).removesuffix(".0")
    return f"{Decimal(text):f}" if "e" in text else text


def gpx_track(device: str) -> str:
    """Return the beginning of a track, up to its first segment."""
    name = xml_text(device)
    return f"<trk><name>{name}</name><extensions><waylog:device>{name}</waylog:device></extensions>"


def gpx_point(time: str, place: Place, more: Mapping[str, Any]) -> str:
    """Return a track point; `more` has values of PLURALS."""
    lat, lon, altitude = place
    known = {name: _text(value) for name, value in more.items() if value is not None}
    garmin = "".join(
        f"<gpxtpx:{name}>{known.pop(name)}</gpxtpx:{name}>" for name in _GARMIN if name in known
    )
    if garmin:
        garmin = f"<gpxtpx:TrackPointExtension>{garmin}</gpxtpx:TrackPointExtension>"
    own = "".join(f"<waylog:{name}>{text}</waylog:{name}>" for name, text in known.items())
    extensions = f"<extensions>{garmin}{own}</extensions>" if garmin or own else ""
    elevation = "" if altitude is None else f"<ele>{number_text(altitude)}</ele>"
    return (
        f'<trkpt lat="{lat:.7f}" lon="{lon:.7f}">{elevation}<time>{time}</time>{extensions}</trkpt>'
    )


def kml_track(
    device: str,
    times: Sequence[str],
    places: Sequence[Place],
    more: Columns,
) -> str:
    """Return a gx:Track: all times, all places (lat, lon, altitude), and lists of other values.

    An unknown altitude is left out: 0 would be a measured one. There is no altitudeMode, so that
    programs draw the track on the ground.
    """
    arrays = "".join(
        f'<gx:SimpleArrayData name="{name}">'
        + "".join(
            "<gx:value/>" if value is None else f"<gx:value>{_text(value)}</gx:value>"
            for value in values
        )
        + "</gx:SimpleArrayData>"
        for name, values in more.items()
        if any(value is not None for value in values)
    )
    data = f'<SchemaData schemaUrl="#fix">{arrays}</SchemaData>' if arrays else ""
    lines = [
        "<gx:Track>",
        *(f"<when>{time}</when>" for time in times),
        *(
            f"<gx:coord>{lon:.7f} {lat:.7f}</gx:coord>"
            if altitude is None
            else f"<gx:coord>{lon:.7f} {lat:.7f} {number_text(altitude)}</gx:coord>"
            for lat, lon, altitude in places
        ),
        f'<ExtendedData><Data name="device"><value>{xml_text(device)}</value></Data>{data}'
        "</ExtendedData></gx:Track>",
    ]
    return "\n".join(lines)


def geojson_feature(
    device: str, times: Sequence[str], coordinates: Sequence[list[float]], more: Columns
) -> dict[str, Any]:
    """Return a LineString with a list for each member, `coordTimes` among them.

    A single point is a Point: a line has at least two (RFC 7946, section 3.1.4).
    """
    single = len(coordinates) == 1
    lists = {
        PLURALS[name]: list(values)
        for name, values in more.items()
        if name in _ALWAYS or any(value is not None for value in values)
    }
    return {
        "type": "Feature",
        "geometry": {
            "type": "Point" if single else "LineString",
            "coordinates": coordinates[0] if single else coordinates,
        },
        "properties": {"device": device, "coordTimes": list(times), **lists},
    }


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float | int):
        return number_text(value)
    if isinstance(value, dict):
        # In ASCII, as XML cannot have all characters that JSON can.
        return escape(json.dumps(value, separators=(",", ":")))
    return xml_text(value)
