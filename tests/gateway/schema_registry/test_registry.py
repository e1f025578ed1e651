"""A registry over HTTP, on a real log: several registries, users, restarts."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from confluent_kafka import Producer

from gateway.users.database import UserStore
from tests.certificates import Certificates
from tests.consumers.running import Broker, await_condition
from tests.registry_process import Registry, registry_on
from waylog.kafka.ranges.topic_reader import read_topic

A = {"name": "a", "type": "int"}
AVRO = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
BODY = {"schema": json.dumps(AVRO)}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker
    broker.process.stop()


@pytest.fixture(scope="module")
def registry(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry_on(broker.address, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def other(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A second registry on the same topic."""
    with registry_on(broker.address, tmp_path_factory.mktemp("other")) as running:
        yield running


@pytest_asyncio.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Answer:
    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self.body = body


async def ask(
    http: aiohttp.ClientSession, method: str, url: str, body: Any = None, **more: Any
) -> Answer:
    async with http.request(method, url, json=body, **more) as response:
        return Answer(response.status, json.loads(await response.read()))


async def test_a_schema_is_registered_and_found(
    registry: Registry, http: aiohttp.ClientSession
) -> None:
    subjects = f"{registry.url}/subjects"
    made = await ask(http, "POST", f"{subjects}/found-value/versions", BODY)
    number, guid = made.body["id"], made.body["guid"]
    assert made.status == 200
    found = {"subject": "found-value", "version": 1, "id": number, "guid": guid,
             "schema": json.dumps(AVRO, separators=(",", ":"))}  # fmt: skip
    latest = f"{subjects}/found-value/versions/latest"
    assert (await ask(http, "GET", latest)).body == found
    assert (await ask(http, "GET", f"{latest}/schema")).body == AVRO
    assert (await ask(http, "GET", f"{latest}/referencedby")).body == []
    assert (await ask(http, "POST", f"{subjects}/found-value", BODY)).body == found
    ids = f"{registry.url}/schemas/ids/{number}"
    assert (await ask(http, "GET", f"{ids}?fetchMaxId=true")).body["maxId"] >= number
    assert (await ask(http, "GET", f"{ids}/schema")).body == AVRO
    assert "found-value" in (await ask(http, "GET", f"{ids}/subjects/")).body
    version = {"subject": "found-value", "version": 1}
    assert version in (await ask(http, "GET", f"{ids}/versions")).body
    by_guid = await ask(http, "GET", f"{registry.url}/schemas/guids/{guid}")
    assert by_guid.body["schema"] == found["schema"]
    assert found in (await ask(http, "GET", f"{registry.url}/schemas")).body
    assert (await ask(http, "GET", f"{registry.url}/schemas/types")).body == [
        *("JSON", "PROTOBUF", "AVRO")
    ]
    assert (await ask(http, "GET", registry.url)).body == {}
    test = f"{registry.url}/compatibility/subjects/found-value/versions"
    for url in (test, f"{test}/latest"):
        other = {"schema": '"string"'}
        assert (await ask(http, "POST", url, other)).body == {"is_compatible": False}
    gone = await ask(http, "DELETE", f"{subjects}/found-value")
    assert gone.body == [1]
    assert (await ask(http, "DELETE", f"{subjects}/found-value?permanent=true")).body == [1]


def tangled(names: list[str]) -> dict[str, str]:
    """Return a schema whose comparison with one of other names takes as long as one may take."""
    records = [{"type": "record", "name": each, "fields": [A]} for each in names]
    unions = [{"name": f"f{number}", "type": names} for number in range(315)]
    fields = [{"name": "all", "type": records}, *unions]
    return {"schema": json.dumps({"type": "record", "name": "T", "fields": fields})}


async def test_others_are_answered_while_schemas_are_compared(
    registry: Registry, http: aiohttp.ClientSession
) -> None:
    names = [f"U{number}" for number in range(315)]
    url = f"{registry.url}/subjects/tangled/versions"
    assert (await ask(http, "POST", url, tangled(names))).status == 200
    comparing = asyncio.create_task(
        ask(http, "POST", f"{registry.url}/compatibility{url.removeprefix(registry.url)}",
            tangled(names[::-1]))
    )  # fmt: skip
    answered = 0
    while not comparing.done():
        assert (await ask(http, "GET", f"{registry.url}/mode")).status == 200
        answered += 1
    assert answered > 3
    assert (await comparing).body["error_code"] == 42201


async def test_one_users_comparisons_do_not_hold_up_anothers(
    registry: Registry, http: aiohttp.ClientSession
) -> None:
    """Users are addresses here, since everybody may write."""
    names = [f"V{number}" for number in range(315)]
    subject = f"{registry.url}/subjects/turns/versions"
    assert (await ask(http, "POST", subject, tangled(names))).status == 200
    compatibility = f"{registry.url}/compatibility/subjects/turns/versions"
    heavy = [
        asyncio.create_task(
            ask(http, "POST", compatibility, tangled([*names[number:], *names[:number]][::-1]))
        )
        for number in range(6)
    ]
    connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    async with aiohttp.ClientSession(connector=connector) as other:
        while not any(each.done() for each in heavy):
            # They are being compared, all of them.
            answer = await ask(other, "POST", compatibility, {"schema": '"string"'})
            assert answer.body == {"is_compatible": False}
            compared = sum(each.done() for each in heavy)
            assert compared < len(heavy)
    assert {each.body["error_code"] for each in await asyncio.gather(*heavy)} == {42201}


async def test_lists_are_given_in_pages(registry: Registry, http: aiohttp.ClientSession) -> None:
    for number in range(3):
        url = f"{registry.url}/subjects/page-{number}/versions"
        assert (await ask(http, "POST", url, BODY)).status == 200
    url = f"{registry.url}/subjects?subjectPrefix=page-"
    for query, expected in (
        ("&limit=2", ["page-0", "page-1"]),
        ("&offset=2&limit=2", ["page-2"]),
        ("&offset=9", []),
        ("&offset=-1&limit=-1", ["page-0", "page-1", "page-2"]),
        ("&offset=x&limit=99999999999999999999", ["page-0", "page-1", "page-2"]),
    ):
        assert (await ask(http, "GET", url + query)).body == expected
    found = await ask(http, "GET", f"{registry.url}/schemas?subjectPrefix=page-&limit=1")
    assert [each["subject"] for each in found.body] == ["page-0"]


async def test_a_schema_of_protobuf_is_kept_and_compared(
    registry: Registry, http: aiohttp.ClientSession
) -> None:
    protobuf = pytest.importorskip("google.protobuf.descriptor_pb2")
    place = {"schema": 'syntax="proto3"; message Place {int32 a=1;}', "schemaType": "PROTOBUF"}
    places = f"{registry.url}/subjects/place.proto/versions"
    assert (await ask(http, "POST", places, place)).status == 200
    text = 'syntax = "proto3"; import "place.proto"; message Trip { Place to = 1; string x = 2; }'
    reference = {"name": "place.proto", "subject": "place.proto", "version": 1}
    trip = {"schema": text, "schemaType": "PROTOBUF", "references": [reference]}
    trips = f"{registry.url}/subjects/trips-value/versions"
    made = await ask(http, "POST", trips, trip)
    assert made.body["schemaType"] == "PROTOBUF" and made.body["references"] == [reference]
    ids = f"{registry.url}/schemas/ids/{made.body['id']}"
    data = base64.b64decode((await ask(http, "GET", f"{ids}?format=serialized")).body["schema"])
    by_guid = f"{registry.url}/schemas/guids/{made.body['guid']}?format=serialized"
    assert base64.b64decode((await ask(http, "GET", by_guid)).body["schema"]) == data
    file = protobuf.FileDescriptorProto.FromString(data)
    assert file.message_type[0].field[0].type_name == ".Place"
    # A base64 descriptor is taken, too; full names make it another text unless normalized.
    again = trip | {"schema": base64.b64encode(data).decode()}
    look = f"{registry.url}/subjects/trips-value?normalize=true"
    assert (await ask(http, "POST", look, again)).status == 404
    changed = trip | {"schema": text.replace("string x = 2", "int32 x = 2")}
    answer = await ask(http, "POST", trips, changed)
    assert (answer.status, answer.body["error_code"]) == (409, 409)
    assert "FIELD_SCALAR_KIND_CHANGED" in answer.body["message"]


async def test_levels_and_modes_are_set(registry: Registry, http: aiohttp.ClientSession) -> None:
    for path, name, shown, value in (
        ("config", "compatibility", "compatibilityLevel", "FULL"),
        ("mode", "mode", "mode", "READONLY"),
    ):
        url = f"{registry.url}/{path}/set-value"
        assert (await ask(http, "GET", url)).status == 404
        assert (await ask(http, "PUT", url, {name: value})).body == {name: value}
        assert (await ask(http, "GET", url)).body == {shown: value}
        assert (await ask(http, "DELETE", url)).body == {shown: value}
        default = await ask(http, "GET", f"{url}?defaultToGlobal=true")
        assert default.body == (await ask(http, "GET", f"{registry.url}/{path}")).body


@pytest.mark.parametrize(
    ("path", "name", "asking", "empty"),
    [
        *(("/config", "normalize", True, False), ("/config/unkept", "alias", "other", None)),
        *(("/config", "compatibilityGroup", "x", ""), ("/config", "validateFields", True, None)),
        ("/config", "defaultRuleSet", {"domainRules": [{"name": "r"}]}, {"domainRules": []}),
        ("/subjects/unkept/versions", "ruleSet", {"domainRules": [{"name": "r"}]}, {}),
        ("/subjects/unkept/versions", "metadata", {"tags": {"a": ["PII"]}}, {"tags": None}),
        ("/subjects/unkept/versions", "schemaTagsToAdd", [{"tags": ["PII"]}], []),
        ("/compatibility/subjects/unkept/versions", "metadata", {"sensitive": ["a"]}, None),
    ],
)
async def test_what_is_not_kept_is_refused(
    registry: Registry,
    http: aiohttp.ClientSession,
    path: str,
    name: str,
    asking: Any,
    empty: Any,
) -> None:
    method = "PUT" if path.startswith("/config") else "POST"
    body = {"compatibility": "BACKWARD"} if method == "PUT" else BODY
    url = f"{registry.url}{path}"
    answer = await ask(http, method, url, body | {name: asking})
    assert (answer.status, name in answer.body["message"]) == (422, True)
    assert (await ask(http, method, url, body | {name: empty})).status == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/subjects/none/versions", None, 404, 40401),
        ("GET", "/schemas/ids/999999", None, 404, 40403),
        ("GET", "/schemas/ids/x", None, 404, 40403),
        ("GET", f"/schemas/ids/{'9' * 50}", None, 404, 40403),
        ("GET", "/schemas/guids/x", None, 404, 40403),
        ("POST", "/subjects/bad/versions", b"", 422, 422),
        ("POST", "/subjects/bad/versions", b"[" * 100_000, 422, 422),
        ("POST", "/subjects/bad/versions", b'{"schema":5}', 422, 422),
        ("POST", "/subjects/bad/versions", b'{"schema":"{"}', 422, 42201),
        ("POST", "/subjects/bad/versions", b'{"schema":"s","schemaType":"THRIFT"}', 422, 422),
        ("POST", "/subjects/bad%0Aname/versions", b'{"schema":"\\"int\\""}', 422, 42208),
        ("POST", "/subjects/bad/versions", b" " * 5_000_000, 413, 413),
        *(("PUT", "/config", b'{"compatibility":"x"}', 422, 42203), ("GET", "/x", None, 404, 404)),
        *(("PUT", "/mode", b'{"mode":"x"}', 422, 42204), ("PUT", "/subjects", b"{}", 405, 405)),
    ],
)
async def test_what_is_refused_has_confluents_code(
    registry: Registry,
    http: aiohttp.ClientSession,
    method: str,
    path: str,
    body: bytes | None,
    status: int,
    code: int,
) -> None:
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    url = registry.url + path
    data = None if body is None else io.BytesIO(body)
    async with http.request(method, url, data=data, headers=headers) as response:
        answer = json.loads(await response.read())
    assert (response.status, answer["error_code"]) == (status, code)
    assert answer["message"]


async def test_pages_of_other_sites_are_refused(
    registry: Registry, http: aiohttp.ClientSession
) -> None:
    for header in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        async with http.get(f"{registry.url}/subjects", headers=header) as response:
            assert response.status in (403, 421)
    async with http.post(
        f"{registry.url}/subjects/s/versions",
        data=json.dumps(BODY),
        headers={"Content-Type": "text/plain"},
    ) as response:
        assert response.status == 415


async def test_two_registries_on_one_topic_never_disagree(
    registry: Registry, other: Registry, http: aiohttp.ClientSession
) -> None:
    """Both register the same and other schemas at the same time: an id is one schema on both."""
    urls = (registry.url, other.url)

    async def register(url: str, number: int) -> tuple[int, int]:
        schema = {"schema": json.dumps(AVRO | {"name": f"Both{number}"})}
        answer = await ask(http, "POST", f"{url}/subjects/both-{number % 3}/versions", schema)
        assert answer.status == 200, answer.body
        return number, answer.body["id"]

    for url in urls:
        level = {"compatibility": "NONE"}
        assert (await ask(http, "PUT", f"{url}/config", level)).status == 200
    answers = await asyncio.gather(*(register(urls[turn % 2], turn // 2) for turn in range(24)))
    ids = dict(answers)
    assert len(set(ids.values())) == 12
    assert all(ids[number] == found for number, found in answers)
    shown = [(await ask(http, "GET", f"{url}/schemas?subjectPrefix=both-")).body for url in urls]
    for number, found in ids.items():
        for url in urls:
            schema = await ask(http, "GET", f"{url}/schemas/ids/{found}")
            assert json.loads(schema.body["schema"])["name"] == f"Both{number}"
    assert sorted(each["version"] for each in shown[0]) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]


async def test_a_registry_that_slept_does_not_write_by_what_it_knew(
    registry: Registry, other: Registry, http: aiohttp.ClientSession
) -> None:
    versions = "/subjects/slept/versions"
    first = {"schema": json.dumps(AVRO | {"name": "Slept0"})}
    await ask(http, "PUT", f"{other.url}/config/slept", {"compatibility": "NONE"})
    assert (await ask(http, "POST", other.url + versions, first)).status == 200
    os.kill(other.process.pid, signal.SIGSTOP)
    sleeper = asyncio.create_task(
        ask(http, "POST", other.url + versions,
            {"schema": json.dumps(AVRO | {"name": "Slept1"})})
    )  # fmt: skip
    await asyncio.sleep(0)
    answer = await ask(
        *(http, "POST", registry.url + versions),
        {"schema": json.dumps(AVRO | {"name": "Slept2"})},
    )
    os.kill(other.process.pid, signal.SIGCONT)
    late = await sleeper
    assert {answer.body["version"], late.body["version"]} == {2, 3}
    assert answer.body["id"] != late.body["id"]


async def test_what_was_answered_outlives_a_kill(
    broker: Broker, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    with registry_on(broker.address, tmp_path) as first:
        for number in range(5):
            schema = {"schema": json.dumps(AVRO | {"name": f"Kept{number}"})}
            url = f"{first.url}/subjects/kept-{number}/versions"
            assert (await ask(http, "POST", url, schema)).status == 200
        os.kill(first.process.pid, signal.SIGKILL)
    with registry_on(broker.address, tmp_path) as second:
        subjects = (await ask(http, "GET", f"{second.url}/subjects?subjectPrefix=kept-")).body
        assert subjects == [f"kept-{number}" for number in range(5)]


async def test_records_of_anybody_do_not_stop_the_registry(
    broker: Broker, registry: Registry, http: aiohttp.ClientSession
) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "log_level": 2})
    odd = [(b"{", b"x"), (b'{"keytype":"SCHEMA"}', b"{}"), (b"x", None), (b"[" * 10_000, None)]
    odd.append((b'{"keytype":"SCHEMA","subject":"odd","version":1,"magic":1}', b'{"id":"x"}'))
    foreign = b'{"subject":"foreign","version":1,"id":90001,"schema":"{\\"type\\":\\"?\\"}"}'
    odd.append((b'{"keytype":"SCHEMA","subject":"foreign","version":1,"magic":1}', foreign))
    for key, value in odd:
        producer.produce("_schemas", value, key)
    assert producer.flush(60) == 0
    # A schema of another registry that is not read here is shown all the same.
    found = await ask(http, "GET", f"{registry.url}/schemas/ids/90001")
    assert found.body["schema"] == '{"type":"?"}'
    made = await ask(http, "POST", f"{registry.url}/subjects/after/versions", BODY)
    assert made.status == 200


def test_a_record_follows_each_transaction(registry: Registry, broker: Broker) -> None:
    """Karapace's reader waits for a record at the last offset, where a marker would be."""

    def newest_key() -> bytes | None:
        *_, last = read_topic(broker.address, "_schemas")
        key = last.key()
        return key.encode() if isinstance(key, str) else key

    asyncio.run(_put_level(registry))
    with ThreadPoolExecutor(1) as pool:
        # It is written behind the transaction, not within the request.
        await_condition(
            lambda: pool.submit(newest_key).result(60) == b'{"keytype":"NOOP","magic":0}',
            *(60, "the record that follows"),
        )


async def _put_level(registry: Registry) -> None:
    async with aiohttp.ClientSession() as http:
        url = f"{registry.url}/config/noop"
        assert (await ask(http, "PUT", url, {"compatibility": "FULL"})).status == 200


def basic(name: str, token: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{token}".encode()).decode()


async def test_users_read_and_administrators_write(
    broker: Broker,
    http: aiohttp.ClientSession,
    tmp_path: Path,
    certificates: Certificates,
) -> None:
    store = UserStore(tmp_path / "users.db")
    user, admin = store.add("anna"), store.add("root", admin=True)
    device = store.add_token("anna", device="phone")
    store.close()
    words = ("--topic", "closed-schemas", "--tls-certificate",
             str(certificates.broker), "--tls-key", str(certificates.broker),
             "--metrics-token-file", str(tmp_path / "token"))  # fmt: skip
    tls = ssl.create_default_context(cafile=certificates.authority)
    with registry_on(broker.address, tmp_path, *words) as closed:
        assert closed.url.startswith("https://")
        url = f"{closed.url}/subjects/mine/versions"

        async def status(method: str, url: str, token: str | None, name: str = "") -> int:
            headers = {} if token is None else {"Authorization": basic(name, token)}
            body = BODY if method != "GET" else None
            return (await ask(http, method, url, body, headers=headers, ssl=tls)).status

        counts = f"{closed.url}/metrics"
        token = (tmp_path / "token").read_text().strip()
        assert await status("GET", counts, None) == 401
        assert await status("GET", counts, user, "anna") == 403
        # The token reads the counts and nothing else.
        assert await status("GET", f"{closed.url}/subjects", token) == 401
        async with http.get(
            counts, headers={"Authorization": f"Bearer {token}"}, ssl=tls
        ) as answer:
            assert answer.status == 200 and answer.content_type == "text/plain"
            page = await answer.text()
        assert 'waylog_schema_registry_requests_total{route="/metrics",status="401"} 1.0' in page
        assert "waylog_schema_registry_subjects 0.0" in page
        assert 'waylog_schema_registry_request_seconds_bucket{le="+Inf"} 3.0' in page
        assert await status("POST", url, None) == 401
        assert await status("GET", f"{closed.url}/subjects", None) == 401
        assert await status("GET", f"{closed.url}/subjects", "wrong", "anna") == 401
        assert await status("GET", f"{closed.url}/subjects", device, "anna") == 403
        assert await status("GET", f"{closed.url}/subjects", user, "anna") == 200
        assert await status("POST", url, user, "anna") == 403
        assert await status("DELETE", f"{closed.url}/subjects/mine", user, "anna") == 403
        assert await status("POST", url, admin, "root") == 200
        assert await status("POST", f"{closed.url}/subjects/mine", user, "anna") == 200
        compatibility = f"{closed.url}/compatibility/subjects/mine/versions"
        assert await status("POST", compatibility, user, "anna") == 200
