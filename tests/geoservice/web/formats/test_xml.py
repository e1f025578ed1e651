"""xml: well-formed for all data, with the elements where clients expect them."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from geoservice.reverse.geocoder import Place
from geoservice.web.formats.described import PLAIN, Described, Details
from geoservice.web.formats.xml import error_answer, reverse_answer, search_answer

_TIME = "Sat, 21 Nov 2026 15:02:25 +00:00"
_ALL = Details(extratags=True, namedetails=True, entrances=True, geojson=True)


def test_one_place_is_a_result_with_its_address_parts(bakery: Described) -> None:
    written = reverse_answer(bakery, PLAIN, query="lat=47.14&lon=9.5&format=xml", timestamp=_TIME)
    assert written.startswith(b'<?xml version="1.0" encoding="UTF-8" ?>\n<reversegeocode ')
    root = ElementTree.fromstring(written)
    assert root.attrib == {
        "timestamp": _TIME,
        "attribution": "Data © OpenStreetMap contributors, ODbL 1.0. http://osm.org/copyright",
        "querystring": "lat=47.14&lon=9.5&format=xml",
        "index_version": "0123456789ab",
    }
    result, address = root
    assert (result.tag, address.tag) == ("result", "addressparts")
    assert result.text == bakery.place.display_name
    assert result.attrib == {
        "place_id": "4711",
        "osm_type": "node",
        "osm_id": "12",
        "ref": 'Bäckerei "Süß & Co"',
        "lat": "47.1400000",
        "lon": "9.5209000",
        "boundingbox": "47.1399500,47.1400500,9.5208500,9.5209500",
        "place_rank": "30",
        "address_rank": "30",
    }
    assert {part.tag: part.text for part in address} == bakery.place.address


def test_the_details_stand_beside_a_result_and_inside_a_place(bakery: Described) -> None:
    result = ElementTree.fromstring(reverse_answer(bakery, _ALL, query="", timestamp=_TIME))
    parts = ["result", "addressparts", "extratags", "namedetails", "entrances"]
    assert [part.tag for part in result] == parts
    found = ElementTree.fromstring(
        search_answer(
            [bakery], _ALL, query="süß", timestamp=_TIME, attributes={"more_url": "http://a?b&c"}
        )
    )
    assert (found.tag, found.get("querystring")) == ("searchresults", "süß")
    assert found.get("more_url") == "http://a?b&c"
    [place] = found
    assert place.get("display_name") == bakery.place.display_name
    assert (place.get("class"), place.get("type"), place.get("importance")) == (
        *("shop", "bakery"),
        "1e-05",
    )
    assert place.get("geojson") == '{"type":"Point","coordinates":[9.5209000,47.1400000]}'
    assert [part.tag for part in place] == [*bakery.place.address, *parts[2:]]
    [tag] = place.iterfind("extratags/tag")
    assert tag.attrib == {"key": "opening_hours", "value": "Mo-Fr <6>"}
    assert place.findtext("namedetails/name[@desc='name:en']") == "Sweet & Co"


def test_a_refusal_is_an_error_element() -> None:
    error = ElementTree.fromstring(error_answer("<&>\x00", 400))
    assert (error.findtext("code"), error.findtext("message")) == ("400", "<&>")


@given(st.text(), st.dictionaries(st.text(min_size=1), st.text(), max_size=4))
def test_any_text_gives_well_formed_xml(text: str, address: dict[str, str]) -> None:
    text = text.encode("utf-8", "replace").decode()
    place = Place(place_id=1, type=text, name=text, display_name=text, address=address)
    described = Described(place=place, lat=0, lon=0, index_version="x", names=address, tags=address)
    ElementTree.fromstring(reverse_answer(described, _ALL, query=text, timestamp=_TIME))
    ElementTree.fromstring(
        search_answer(
            [described, msgspec.structs.replace(described, ref=text)],
            _ALL,
            query=text,
            timestamp=_TIME,
            attributes={"viewbox": text},
        )
    )
