"""Query parameters, valid and invalid."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoservice.web.formats.described import Details
from geoservice.web.parameters import BadRequest, Parameters, parse_query

_TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)
_NAMES = st.sampled_from(
    ["lat", "lon", "zoom", "layer", "accept-language", "polygon_geojson", "debug", "q"]
)


@given(st.lists(st.tuples(st.one_of(_NAMES, _TEXT), _TEXT), max_size=12))
def test_a_query_is_read_as_the_standard_library_does(pairs: list[tuple[str, str]]) -> None:
    text = urlencode(pairs)
    assert parse_query(text) == dict(parse_qsl(text, keep_blank_values=True))


@given(st.text(alphabet="ab=&%+;é", max_size=30))
def test_what_needs_no_decoding_takes_a_short_way_to_the_same(text: str) -> None:
    assert parse_query(text).keys() >= {
        name for name, value in parse_qsl(text, keep_blank_values=True) if "%" not in text
    }


@given(st.dictionaries(_NAMES, st.one_of(_TEXT, st.floats().map(str), st.integers().map(str))))
def test_anything_is_answered_or_refused(values: dict[str, str]) -> None:
    parameters = Parameters(values)
    for read in (
        lambda: parameters.number("lat"),
        parameters.zoom,
        parameters.layers,
        lambda: parameters.details(values.get("q")),
    ):
        try:
            read()
        except BadRequest as error:
            assert str(error)


def test_what_is_plain_asks_only_for_defaults() -> None:
    assert Parameters(parse_query("lat=1&lon=2&format=jsonv2&zoom=18&addressdetails=1")).are_plain()
    for more in ("zoom=17", "addressdetails=0", "layer=poi", "polygon_geojson=1"):
        assert not Parameters(parse_query(f"lat=1&lon=2&{more}")).are_plain()


def test_a_language_parameter_comes_before_the_header() -> None:
    parameters = Parameters({"accept-language": "de-AT", "extratags": "1", "namedetails": "0"})
    assert parameters.details("fr") == Details(extratags=True, languages=("de-AT", "de"))
    assert Parameters({}).details("fr;q=0.5,it").languages == ("it", "fr")


def test_too_many_parameters_are_refused() -> None:
    with pytest.raises(BadRequest, match="At most"):
        parse_query("&".join([quote_plus("é")] * 300))
