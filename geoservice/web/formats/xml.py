"""Format xml: <reversegeocode> for one place, <searchresults> for a list."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree

import msgspec

from geoservice.web.formats.described import LICENCE_OSM, Described, Details

#: Characters that XML 1.0 cannot represent (section 2.2).
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")
_DECLARATION: Final = b'<?xml version="1.0" encoding="UTF-8" ?>\n'
_encode_json = msgspec.json.Encoder().encode


def reverse_answer(
    described: Described | None, details: Details, *, query: str, timestamp: str
) -> bytes:
    """Return the answer with one place or an error; `timestamp` is the time in RFC 2822 format."""
    root = _root("reversegeocode", described, query, timestamp)
    if described is None:
        ElementTree.SubElement(root, "error").text = "Unable to geocode"
        return _written(root)
    result = _place(root, "result", described)
    result.text = _text(described.place.display_name)
    if details.geojson:
        result.set("geojson", _geojson(described))
    if details.addressdetails and described.place.address:
        _address(ElementTree.SubElement(root, "addressparts"), described)
    _details(root, described, details)
    return _written(root)


def search_answer(
    found: Sequence[Described],
    details: Details,
    *,
    query: str,
    timestamp: str,
    attributes: Mapping[str, str],
) -> bytes:
    """Return a list of places; `attributes` are added to those of the root element."""
    root = _root("searchresults", found[0] if found else None, query, timestamp)
    for name, value in attributes.items():
        root.set(name, _text(value))
    for described in found:
        place = described.place
        element = _place(root, "place", described)
        if details.geojson:
            element.set("geojson", _geojson(described))
        element.set("display_name", _text(place.display_name))
        element.set("class", _text(described.category))
        element.set("type", _text(described.type))
        element.set("importance", str(described.importance))
        if details.addressdetails:
            _address(element, described)
        _details(element, described, details)
    return _written(root)


def error_answer(message: str, status: int) -> bytes:
    """Return an error answer."""
    root = ElementTree.Element("error")
    ElementTree.SubElement(root, "code").text = str(status)
    ElementTree.SubElement(root, "message").text = _text(message)
    return _written(root)


def _root(tag: str, first: Described | None, query: str, timestamp: str) -> ElementTree.Element:
    root = ElementTree.Element(tag)
    root.set("timestamp", timestamp)
    root.set("attribution", first.licence if first is not None else LICENCE_OSM)
    root.set("querystring", _text(query))
    if first is not None:
        root.set("index_version", first.index_version)
    return root


def _place(root: ElementTree.Element, tag: str, described: Described) -> ElementTree.Element:
    place = described.place
    element = ElementTree.SubElement(root, tag, {"place_id": str(place.place_id)})
    if place.osm_type is not None:
        element.set("osm_type", place.osm_type)
        element.set("osm_id", str(place.osm_id))
    # Without a reference, ref is the name: so does Nominatim, and its clients expect it.
    if ref := described.ref or place.name:
        element.set("ref", _text(ref))
    element.set("lat", f"{described.lat:.7f}")
    element.set("lon", f"{described.lon:.7f}")
    element.set("boundingbox", ",".join(f"{degrees:.7f}" for degrees in described.box))
    if described.postal is not None:
        element.set("formatted_address", _text(", ".join(described.postal)))
    element.set("place_rank", str(place.place_rank))
    element.set("address_rank", str(place.address_rank))
    return element


def _address(parent: ElementTree.Element, described: Described) -> None:
    for key, name in described.place.address.items():
        tag = _NOT_IN_A_NAME.sub("_", key)
        if not tag[:1].isalpha():
            tag = f"_{tag}"
        ElementTree.SubElement(parent, tag).text = _text(name)


def _details(parent: ElementTree.Element, described: Described, details: Details) -> None:
    if details.extratags:
        element = ElementTree.SubElement(parent, "extratags")
        for key, value in (described.tags or {}).items():
            ElementTree.SubElement(element, "tag", {"key": _text(key), "value": _text(value)})
    if details.namedetails:
        element = ElementTree.SubElement(parent, "namedetails")
        for key, value in (described.names or {}).items():
            ElementTree.SubElement(element, "name", {"desc": _text(key)}).text = _text(value)
    if details.entrances:
        ElementTree.SubElement(parent, "entrances")


def _geojson(described: Described) -> str:
    if described.geometry is not None:
        return _encode_json(described.geometry).decode()
    return f'{{"type":"Point","coordinates":[{described.lon:.7f},{described.lat:.7f}]}}'


def _text(text: str) -> str:
    return _UNWRITABLE.sub("", text)


def _written(root: ElementTree.Element) -> bytes:
    return _DECLARATION + ElementTree.tostring(root, encoding="unicode").encode()
