"""What each template sends: the form that the server documents, read back by our own parsers."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import SinkRecord
from consumers.connect.data.schemas import FLOAT64, INT64, OPTIONAL_FLOAT64, STRING, struct_of
from consumers.connect.data.structs import Struct
from consumers.connect.http.answers.answer import Answer
from consumers.connect.http.answers.status import Meaning
from consumers.connect.http.templates.by_name import BATCHING, TEMPLATES
from consumers.connect.http.templates.device_names import DeviceNames
from consumers.connect.http.templates.own import BatchForm, OwnTemplate
from consumers.connect.http.templates.request import Request
from consumers.connect.http.templates.template import Template
from gateway.formats import Context, Parsed
from gateway.formats.by_name import PARSERS
from tests.consumers.connect.sink_harness import fix, record

RECEIVED = 1_761_994_812_000
FULL: dict[str, Any] = {
    "accuracy": 14.4,
    "altitude": 61.0,
    "vertical_accuracy": 3.0,
    "speed": 6.4,
    "course": 141.0,
    "battery": 72.0,
    "charging": True,
}


def made(name: str, url: str, *records: SinkRecord, names: str = "") -> Request:
    template = TEMPLATES[name](url, DeviceNames([names] if names else []))
    return template.request(records or [record(fix(0, **FULL))])


def read_back(parser: str, request: Request, query: dict[str, str] | None = None) -> Parsed:
    content_type = dict(request.headers).get("Content-Type", "")
    device = (query or {}).get("d")
    context = Context(
        "anna", device, RECEIVED, any_user=True, query=query, content_type=content_type
    )
    parsed = PARSERS[parser](request.body, context)
    assert not parsed.rejected, parsed.rejected
    return parsed


def members(request: Request, parser: str, query: dict[str, str] | None = None) -> dict[str, Any]:
    (found,) = read_back(parser, request, query).fixes
    return {name: getattr(found, name) for name in ("device", "lat", "lon", "time", *FULL)}


EXPECTED = {"device": "anna/phone", "lat": 47.1412, "lon": 9.5215, "time": fix(0)["time"], **FULL}


def test_traccar_by_query() -> None:
    request = made("traccar", "https://traccar:5055/", names="anna/phone=54017733")
    assert request.method == "GET"
    assert not request.body
    query = dict(parse_qsl(urlsplit(request.url).query))
    assert query == {
        "id": "54017733",
        "lat": "47.1412",
        "lon": "9.5215",
        "timestamp": str(fix(0)["time"]),
        "speed": "12.441",  # knots
        "bearing": "141.0",
        "altitude": "61.0",
        "accuracy": "14.4",
        "batt": "72.0",
        "charge": "true",
    }
    found = members(request, "osmand", query)
    assert found.pop("speed") == pytest.approx(6.4, abs=0.001)
    assert found["lat"] == 47.1412
    assert found["charging"] is True


def test_traccar_by_json() -> None:
    request = made("traccar-json", "https://traccar:5055")
    body = json.loads(request.body)
    assert body["device_id"] == "anna/phone"
    assert body["location"]["timestamp"] == "2025-11-01T11:00:05.000Z"
    assert body["location"]["coords"]["speed"] == 6.4
    assert body["location"]["battery"] == {"level": 0.72, "is_charging": True}
    assert members(request, "traccar") | {"vertical_accuracy": 3.0} == EXPECTED


def test_dawarich_takes_many() -> None:
    records = [record(fix(number, f"anna/{number % 2}", **FULL)) for number in range(3)]
    request = made("dawarich", "https://dawarich.example.org", *records)
    assert (request.method, request.url) == ("POST", "https://dawarich.example.org/api/v1/points")
    body = json.loads(request.body)
    assert list(body) == ["locations"]
    assert body["locations"][0] == {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [9.5215, 47.1412]},
        "properties": {
            "timestamp": "2025-11-01T11:00:05.000Z",
            "device_id": "anna/0",
            "horizontal_accuracy": 14.4,
            "altitude": 61.0,
            "vertical_accuracy": 3.0,
            "speed": 6.4,
            "course": 141.0,
            "battery_level": 0.72,
            "battery_state": "charging",
        },
    }
    fixes = read_back("overland", request).fixes
    assert [each.device for each in fixes] == ["anna/0", "anna/1", "anna/0"]
    assert [each.time for each in fixes] == [fix(number)["time"] for number in range(3)]


@pytest.mark.parametrize(
    ("name", "url", "expected_url"),
    [
        ("owntracks-recorder", "http://r:8083", "http://r:8083/pub?u=anna&d=phone"),
        ("owntracks-recorder", "http://r/recorder/pub", "http://r/recorder/pub?u=anna&d=phone"),
        ("dawarich-owntracks", "http://d", "http://d/api/v1/owntracks/points"),
        ("home-assistant", "http://h/api/webhook/abc", "http://h/api/webhook/abc"),
    ],
)
def test_owntracks_json(name: str, url: str, expected_url: str) -> None:
    request = made(name, url)
    assert request.url == expected_url
    body = json.loads(request.body)
    assert body["_type"] == "location"
    assert (body["tst"], body["vel"], body["batt"], body["bs"]) == (1_761_994_805, 23, 72, 2)
    assert body["tid"] == "ne"
    assert body.get("topic", "owntracks/anna/phone") == "owntracks/anna/phone"
    query = dict(parse_qsl(urlsplit(request.url).query))
    found = members(request, "owntracks", query)
    assert found.pop("speed") == pytest.approx(6.4, abs=0.15)
    assert found.pop("accuracy") == 14
    assert found.items() <= EXPECTED.items()


def test_home_assistant_ignores_a_location_without_accuracy() -> None:
    bodies = [
        json.loads(made("home-assistant", "http://h/x", record(fix(0, **more))).body)
        for more in ({}, {"accuracy": 0.2}, {"accuracy": 5})
    ]
    assert [body["acc"] for body in bodies] == [200, 1, 5]


def test_home_assistants_form() -> None:
    request = made("home-assistant-gpslogger", "http://h/api/webhook/abc")
    assert parse_qs(request.body.decode()) == {
        "device": ["anna_phone"],
        "latitude": ["47.1412"],
        "longitude": ["9.5215"],
        "accuracy": ["14.4"],
        "battery": ["72.0"],
        "speed": ["6.4"],
        "direction": ["141.0"],
        "altitude": ["61.0"],
        "provider": ["waylog"],
    }


def test_phonetrack_takes_many_of_one_device() -> None:
    url = "https://cloud/apps/phonetrack/logPostMultiple/TOKEN"
    records = [record(fix(0, **FULL)), record(fix(1000))]
    request = made("phonetrack", url, *records)
    assert request.url == url + "/anna-phone"
    assert json.loads(request.body)["points"] == [
        [47.1412, 9.5215, 1_761_994_805, 61.0, 14.4, 72.0, "", "waylog", 6.4, 141.0],
        [fix(1000)["lat"], fix(1000)["lon"], 1_761_994_806, "", "", "", "", "waylog", "", ""],
    ]
    first, second = read_back("phonetrack", request, {"device": "phone"}).fixes
    assert (first.speed, first.battery, first.accuracy) == (6.4, 72.0, 14.4)
    assert (second.speed, second.altitude) == (None, None)
    template = TEMPLATES["phonetrack"](url, DeviceNames([]))
    assert template.target(records[0]) == template.target(records[1])
    assert template.target(record(fix(0, "bert/bike"))) != template.target(records[0])


JSON, TEXT, PAGE = "application/json", "text/plain", "text/html"
SIGN_IN = b"\n<!DOCTYPE html><title>Sign in</title>"


@pytest.mark.parametrize(
    ("names", "answers", "expected"),
    [
        (
            ("phonetrack",),
            ((200, JSON, b'{"done":1,"friends":[]}'), (413, PAGE, b"<html>too large")),
            None,
        ),
        (
            ("phonetrack",),
            (
                *((200, JSON, b'{"done":0}'), (403, JSON, b'{"done":0,"error":"wrong token"}')),
                *((403, JSON, b'{"done":3}'), (400, JSON, b'{"done":2}')),
            ),
            (Meaning.SET_UP, True),
        ),
        (
            ("phonetrack",),
            (
                *((200, JSON, b"[]"), (200, JSON, b'{"done":'), (204, "", b"")),
                *((404, JSON, b'{"message":""}'), (400, PAGE, SIGN_IN)),
            ),
            (Meaning.LATER, False),
        ),
        (
            ("dawarich", "dawarich-owntracks", "owntracks-recorder", "home-assistant"),
            (
                *((200, JSON, b"[]"), (201, JSON, b' {"data":[{"id":1}]}'), (422, JSON, b"{}")),
                *((404, TEXT, b"404: Not Found"), (413, PAGE, SIGN_IN)),
            ),
            None,
        ),
        (
            ("dawarich", "dawarich-owntracks", "owntracks-recorder", "home-assistant"),
            ((200, "", b""), (204, "", b""), (200, JSON, b'[{"a":'), (200, TEXT, b"ok")),
            (Meaning.LATER, False),
        ),
        (
            ("home-assistant-gpslogger",),
            ((200, TEXT, b"Setting location for phone"), (422, TEXT, b"expected float")),
            None,
        ),
        (("home-assistant-gpslogger",), ((200, "", b""), (204, "", b"")), (Meaning.LATER, False)),
        (
            ("traccar", "traccar-json"),
            ((200, "", b""), (200, TEXT, b"engineStop"), (200, PAGE, b"OK"), (400, "", b"")),
            None,
        ),
        (
            set(TEMPLATES),
            (
                *((200, PAGE, SIGN_IN), (200, "", b"\xef\xbb\xbf<html>"), (404, PAGE, SIGN_IN)),
                *((200, PAGE, b"<script>"), (403, PAGE, b"<HTML>")),
            ),
            (Meaning.LATER, False),
        ),
    ],
)
def test_an_answer_counts_if_it_is_one_of_the_server(
    names: Collection[str],
    answers: Sequence[tuple[int, str, bytes]],
    expected: tuple[Meaning, bool] | None,
) -> None:
    for name in names:
        template = TEMPLATES[name]("https://h/x", DeviceNames([]))
        for answer in answers:
            found = template.objection(Answer(*answer))
            told = None if found is None else (found.meaning, found.is_from_server)
            assert told == expected, (name, answer, found)


def test_of_a_long_answer_the_beginning_counts() -> None:
    template = TEMPLATES["dawarich"]("https://h/x", DeviceNames([]))
    assert template.objection(Answer(200, JSON, b'{"data":[', is_whole=False)) is None
    assert template.objection(Answer(200, PAGE, SIGN_IN, is_whole=False)) is not None


def test_what_a_webhook_answers_is_its_own() -> None:
    for answer in ((200, PAGE, SIGN_IN), (204, "", b""), (404, PAGE, SIGN_IN)):
        assert own().objection(Answer(*answer)) is None


FIX_SCHEMA = struct_of(
    {"device": STRING, "lat": FLOAT64, "lon": FLOAT64, "time": INT64, "speed": OPTIONAL_FLOAT64}
)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_position_may_be_a_struct_or_text(name: str) -> None:
    known = {"device": "anna/phone", "lat": 1.0, "lon": 2.0, "time": 1_761_994_805_000}
    requests = [
        made(name, "http://h/x", record(value, schema))
        for value, schema in (
            (known, None),
            (Struct(FIX_SCHEMA, known), FIX_SCHEMA),
            (json.dumps(known), STRING),
            (json.dumps(known).encode(), None),
        )
    ]
    assert all(request == requests[0] for request in requests)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(
    "value", [{}, 5, "text", {**fix(0), "lat": 91}, {**fix(0), "lon": "x"}, None]
)
def test_what_is_no_position_is_refused(name: str, value: Any) -> None:
    with pytest.raises(DataException, match="the record is no position"):
        made(name, "http://h/x", record(value))


def test_templates_that_batch_are_named() -> None:
    batching = {
        name
        for name, make in TEMPLATES.items()
        if make("http://h/x", DeviceNames([])).batch_records > 1
    }
    assert batching == set(BATCHING)


def own(url: str = "http://h/x", body: str | None = None, **more: Any) -> Template:
    settings = {"method": "POST", "content_type": "application/json", "batch": None} | more
    return OwnTemplate(settings["method"], url, body, settings["content_type"], settings["batch"])


def test_without_a_template_the_value_is_the_body() -> None:
    values = [
        {"a": [1, None, "ä"]},
        "text",
        b"\xff",
        Struct(
            FIX_SCHEMA, {**fix(0), "x": 1} and {"device": "d", "lat": 1.0, "lon": 2.0, "time": 3}
        ),
    ]
    bodies = [own().request([record(value)]).body for value in values]
    assert bodies == [
        '{"a":[1,null,"ä"]}'.encode(),
        b"text",
        b"\xff",
        b'{"device":"d","lat":1.0,"lon":2.0,"time":3,"speed":null}',
    ]


def test_fields_fill_urls_and_bodies() -> None:
    template = own(
        "http://h/${@topic}/${device}?q=${attributes.text}&n=${missing}",
        '{"name": "${device}: ${attributes.text}", "at": [${lat},${lon}], "all": ${attributes},'
        ' "none": ${missing}, "empty": "${missing}", "key": ${@key}}',
    )
    text = 'a "b" \\ & ä\n'
    value = {"device": "anna/phone", "lat": 1, "lon": 2.5, "attributes": {"text": text}}
    for each in (value, json.dumps(value)):
        request = template.request([record(each, key="k/1")])
        assert request.url == ("http://h/t/anna%2Fphone?q=a%20%22b%22%20%5C%20%26%20%C3%A4%0A&n=")
        assert json.loads(request.body) == {
            "name": f"anna/phone: {text}",
            "at": [1, 2.5],
            "all": {"text": text},
            "none": None,
            "empty": "",
            "key": "k/1",
        }


KEYS_THAT_LEAD_ELSEWHERE = [None, "", ".", "..", "../admin", "a/../b", "a\\..\\b", b"", "\ud800"]


@pytest.mark.parametrize("key", KEYS_THAT_LEAD_ELSEWHERE)
def test_a_record_does_not_leave_the_path(key: Any) -> None:
    for url in ("http://h/items/${@key}", "http://h/items/${@key}/x?a=b", "http://h/${@key}#x"):
        for value in ({"a": 1}, None):
            with pytest.raises(DataException, match=r"^url: |^the URL's path would lead elsewhere"):
                own(url).target(record(value, key=key))


@pytest.mark.parametrize("value", [{}, {"id": None}, {"id": ""}, {"id": ".."}, "text", 5, None])
def test_fields_do_not_leave_the_path_either(value: Any) -> None:
    with pytest.raises(DataException):
        own("http://h/items/${id}/x").request([record(value)])


def test_a_segment_is_checked_as_a_whole() -> None:
    template = own("http://h/v1./${@key}.${@topic}/..?at=${@key}#${a/b}")
    with pytest.raises(DataException, match="would lead elsewhere"):
        template.target(record({}, key="/", topic="."))
    # What the property says itself is its author's affair.
    request = template.request([record({"a/b": "x y"}, key="k.", topic="t")])
    assert request.url == "http://h/v1./k..t/..?at=k.#x%20y"


def test_only_a_deletion_needs_all_of_its_query() -> None:
    url = "http://h/items?id=${id}&key=${@key}"
    assert own(url).request([record({"id": 1})]).url == "http://h/items?id=1&key="
    with pytest.raises(DataException, match="@key"):
        own(url, method="DELETE").request([record({"id": 1})])
    with pytest.raises(DataException, match="no fields"):
        own(url).request([record(None, key="k")])
    deletion = own("http://h/items?key=${@key}").request([record(None, key="k/1")])
    assert deletion == Request("DELETE", "http://h/items?key=k%2F1")


@pytest.mark.parametrize("value", ["text", "5", b"[]", 5, [1]])
def test_a_value_without_fields_fills_no_body(value: Any) -> None:
    with pytest.raises(DataException, match=r"^body\.template: \$\{a\.b\}: the value is no object"):
        own(body='{"a": ${a.b}}').request([record(value)])
    assert own(body='{"o": ${@offset}}').request([record(value)]).body.startswith(b'{"o": ')


@pytest.mark.parametrize("device", ["", ".", ".."])
def test_phonetracks_path_is_not_left_either(device: str) -> None:
    with pytest.raises(DataException):
        made("phonetrack", "http://h/TOKEN", record(fix(0, device)))


def test_a_form_is_percent_encoded_and_a_text_is_not() -> None:
    value = record({"a": "x y&z"})
    form = own(body="a=${a}", content_type="application/x-www-form-urlencoded")
    assert form.request([value]).body == b"a=x%20y%26z"
    assert own(body="a=${a}", content_type="text/plain").request([value]).body == b"a=x y&z"


def test_several_records_have_something_between_them() -> None:
    records = [record({"a": number}) for number in range(3)]
    assert own(batch=BatchForm()).request(records).body == b'[{"a":0},{"a":1},{"a":2}]'
    lines = own(batch=BatchForm("", "\n", ""), body="${a}", content_type="text/csv")
    assert lines.request(records).body == b"0\n1\n2"
    assert own(batch=BatchForm()).request(records[:1]).body == b'[{"a":0}]'


def test_a_get_has_no_body() -> None:
    request = own("http://h/?lat=${lat}", method="GET").request([record({"lat": 5})])
    assert request == Request("GET", "http://h/?lat=5", b"", {})


@pytest.mark.parametrize("text", ["${}", "${ }", "${@nothing}"])
def test_a_placeholder_needs_a_name(text: str) -> None:
    with pytest.raises(ConfigException, match=r"body\.template"):
        own(body=text)
