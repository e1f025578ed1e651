"""What a client of a registry makes of answers, without a registry that gives them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.consumers.connect.http.http_server import Answer, HttpServer, Seen
from waylog.serialization import registry_client
from waylog.serialization.registry_client import RegistryClient
from waylog.serialization.schema_ids import SchemaId
from waylog.serialization.serializer import SchemaRegistryUnavailable, SerializationError

JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
PROTO = 'syntax = "proto3"; message One { string a = 1; } message Two { int32 b = 1; }'


def of_json(status: int, content: object) -> Answer:
    return status, json.dumps(content), JSON


def an_error(status: int, code: int) -> Answer:
    return of_json(status, {"error_code": code, "message": "why"})


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer().running() as running:
        yield running


@pytest.fixture
def client(server: HttpServer) -> Iterator[RegistryClient]:
    made = RegistryClient(server.url, {"max.retries": 0})
    yield made
    made.close()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        # Waiting helps, or somebody can: nothing is given up for it.
        (an_error(401, 40101), SchemaRegistryUnavailable),
        (an_error(403, 40301), SchemaRegistryUnavailable),
        (an_error(429, 429), SchemaRegistryUnavailable),
        (an_error(500, 50001), SchemaRegistryUnavailable),
        (an_error(503, 50303), SchemaRegistryUnavailable),
        # A proxy knows nothing of schemas.
        ((404, "<html>not found</html>", {"Content-Type": "text/html"}), SchemaRegistryUnavailable),
        (an_error(404, 404), SchemaRegistryUnavailable),
        # The registry knows that there is none.
        (an_error(404, 40403), SerializationError),
        (an_error(422, 42201), SerializationError),
    ],
)
def test_what_waiting_may_cure_is_told_from_what_it_does_not(
    server: HttpServer, client: RegistryClient, answer: Answer, kind: type[Exception]
) -> None:
    server.answer = lambda _: answer
    with pytest.raises(kind):
        client.schema_of(SchemaId(1))
    # It is asked for again as soon as waiting may have helped, and not at once where it does not.
    asked = len(server.seen)
    with pytest.raises(kind):
        client.schema_of(SchemaId(1))
    assert (len(server.seen) > asked) == (kind is SchemaRegistryUnavailable)


def test_a_schema_that_was_missing_is_asked_for_again(
    server: HttpServer, client: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_client, "_UNKNOWN_S", 0.0)
    server.answer = lambda _: an_error(404, 40403)
    with pytest.raises(SerializationError):
        client.schema_of(SchemaId(1))
    server.answer = lambda _: of_json(200, {"schema": '"string"'})
    assert client.schema_of(SchemaId(1)).read(b"\x02a") == "a"


def test_few_schemas_are_remembered(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_client, "_SCHEMAS_MAX", 3)
    server.answer = lambda _: of_json(200, {"schema": '"string"'})
    client = RegistryClient(server.url)
    for number in (1, 2, 3, 4, 4, 3):
        client.schema_of(SchemaId(number))
    assert len(server.seen) == 4
    client.schema_of(SchemaId(1))
    assert len(server.seen) == 5
    client.close()


def newest(seen: Seen) -> Answer:
    """Answer with the newest schema of a subject."""
    [subject] = re.findall("/subjects/([^/]+)/versions/latest", seen.path)
    return of_json(
        200, {"subject": subject, "id": 7, "version": 1, "schemaType": "PROTOBUF", "schema": PROTO}
    )


def test_of_the_newest_schema_each_message_is_its_own(
    server: HttpServer, client: RegistryClient
) -> None:
    server.answer = newest
    names = [client.latest("s", message=each).schema.name for each in (None, "Two", "One", None)]
    assert names == ["One", "Two", "One", "One"]


def test_the_newest_schema_is_asked_for_again_after_its_time(
    server: HttpServer, client: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_client, "_LATEST_S", 0.0)
    made = RegistryClient(server.url)
    server.answer = newest
    assert made.latest("s").schema.name == "One"
    server.answer = lambda _: an_error(404, 40401)
    with pytest.raises(SerializationError):
        made.latest("s")
    made.close()


def test_the_newest_schema_is_believed_for_a_minute(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(registry_client, "time", SimpleNamespace(monotonic=lambda: now[0]))
    # Confluent's client has a memory with a clock of its own.
    made = RegistryClient(server.url, {"cache.latest.ttl.sec": 0})
    server.answer = newest
    for now[0], asked in ((1000.0, 1), (1059.0, 1), (1061.0, 2)):
        made.latest("s")
        assert len(server.seen) == asked
    made.close()


def test_what_a_reference_refers_to_comes_before_it(
    server: HttpServer, client: RegistryClient
) -> None:
    def record(name: str, type_: str) -> str:
        field = {"name": "of", "type": type_}
        return json.dumps({"type": "record", "name": name, "fields": [field]})

    def answer(seen: Seen) -> Answer:
        if seen.path.startswith("/schemas/ids/"):
            below = [{"name": "B", "subject": "b", "version": 1}]
            return of_json(200, {"schema": record("A", "B"), "references": below})
        if "/subjects/b/" in seen.path:
            below = [{"name": "C", "subject": "c", "version": 1}]
            schema = {"schema": record("B", "C"), "references": below}
        else:
            schema = {"schema": record("C", "int")}
        return of_json(200, {"id": 2, "version": 1, "subject": "s", **schema})

    server.answer = answer
    assert client.schema_of(SchemaId(1)).read(b"\x02") == {"of": {"of": {"of": 1}}}
