"""What any schema registry with Confluent's interface has to do.

Runs on ours, or on the one that WAYLOG_TEST_SCHEMA_REGISTRY names (a URL).
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.registry_process import registry_with_broker

ENVIRONMENT = "WAYLOG_TEST_SCHEMA_REGISTRY"
A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "int", "default": 0}
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def code(self) -> Any:
        return self.status, self.body.get("error_code")


class Client:
    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": MEDIA_TYPE}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return Answer(response.status, json.loads(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.status or 0, json.loads(error.read()))

    def register(self, subject: str, schema: Any, **more: Any) -> Answer:
        return self.ask("POST", f"/subjects/{subject}/versions", body_of(schema, **more))


def body_of(schema: Any, **more: Any) -> dict[str, Any]:
    return {"schema": json.dumps(schema), **more}


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields or (A,))}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    if url := os.environ.get(ENVIRONMENT):
        yield Client(url.rstrip("/"))
    else:
        with registry_with_broker(tmp_path_factory.mktemp("registry")) as running:
            yield Client(running.url)


@pytest.fixture
def subject() -> str:
    return f"subject-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def name() -> str:
    """A record of a name that no other test registers: each schema has one id everywhere."""
    return f"R{uuid.uuid4().hex[:8]}"


def test_a_schema_has_one_id(client: Client, subject: str, name: str) -> None:
    first = client.register(subject, record(name=name))
    assert first.status == 200
    assert client.register(subject, record(name=name)).body["id"] == first.body["id"]
    assert client.register(f"{subject}-2", record(name=name)).body["id"] == first.body["id"]
    second = client.register(subject, record(A, B, name=name)).body["id"]
    assert second > first.body["id"]
    assert client.ask("GET", f"/subjects/{subject}/versions").body == [1, 2]
    shown = client.ask("GET", f"/subjects/{subject}/versions/latest").body
    assert (shown["subject"], shown["version"], shown["id"]) == (subject, 2, second)
    assert json.loads(shown["schema"]) == record(A, B, name=name)
    by_id = client.ask("GET", f"/schemas/ids/{second}").body
    assert json.loads(by_id["schema"]) == record(A, B, name=name)
    found = client.ask("POST", f"/subjects/{subject}", body_of(record(name=name))).body
    assert (found["version"], found["id"]) == (1, first.body["id"])
    versions = client.ask("GET", f"/schemas/ids/{first.body['id']}/versions").body
    assert {"subject": subject, "version": 1} in versions
    assert "AVRO" in client.ask("GET", "/schemas/types").body


@pytest.mark.parametrize(
    ("level", "fields", "fits"),
    [
        *(("BACKWARD", [A, B], True), ("BACKWARD", [A, {"name": "b", "type": "int"}], False)),
        *(("FORWARD", [A, {"name": "b", "type": "int"}], True), ("FULL", [A, B], True)),
        *(("FORWARD", [{"name": "a", "type": "long"}], False),),
        *(("FULL_TRANSITIVE", [{"name": "a", "type": "long"}], False),),
        ("NONE", [{"name": "a", "type": "string"}], True),
    ],
)
def test_compatibility_is_checked(
    client: Client, subject: str, name: str, level: str, fields: list[Any], fits: bool
) -> None:
    answer = client.ask("PUT", f"/config/{subject}", {"compatibility": level})
    assert answer == (200, {"compatibility": level})
    assert client.ask("GET", f"/config/{subject}").body == {"compatibilityLevel": level}
    client.register(subject, record(name=name))
    asked = client.ask(
        "POST", f"/compatibility/subjects/{subject}/versions/latest",
        body_of(record(*fields, name=name)),
    )  # fmt: skip
    assert asked.body["is_compatible"] == fits
    answer = client.register(subject, record(*fields, name=name))
    assert answer.status == (200 if fits else 409)
    if not fits:
        assert answer.body["error_code"] == 409


def test_references_are_kept(client: Client, subject: str, name: str) -> None:
    client.register(f"{subject}-point", record(name=f"{name}Point"))
    line = record({"name": "to", "type": f"{name}Point"}, name=f"{name}Line")
    references = [{"name": f"{name}Point", "subject": f"{subject}-point", "version": 1}]
    answer = client.register(subject, line, references=references)
    assert answer.status == 200
    shown = client.ask("GET", f"/schemas/ids/{answer.body['id']}").body
    assert shown["references"] == references
    used = client.ask("GET", f"/subjects/{subject}-point/versions/1/referencedby").body
    assert used == [answer.body["id"]]
    assert client.ask("DELETE", f"/subjects/{subject}-point").code == (422, 42206)


def test_deletion_has_two_steps(client: Client, subject: str, name: str) -> None:
    client.register(subject, record(name=name))
    client.register(subject, record(A, B, name=name))
    url = f"/subjects/{subject}"
    assert client.ask("DELETE", f"{url}?permanent=true").code == (404, 40405)
    assert client.ask("DELETE", f"{url}/versions/1?permanent=true").code == (404, 40407)
    assert client.ask("DELETE", f"{url}/versions/1").body == 1
    assert client.ask("DELETE", f"{url}/versions/1").code == (404, 40406)
    assert client.ask("GET", f"{url}/versions").body == [2]
    assert client.ask("GET", f"{url}/versions?deleted=true").body == [1, 2]
    assert client.ask("GET", f"{url}/versions/1").code == (404, 40402)
    assert client.ask("DELETE", url).body == [2]
    assert subject not in client.ask("GET", "/subjects").body
    assert subject in client.ask("GET", "/subjects?deleted=true").body
    assert client.ask("DELETE", url).code == (404, 40404)
    assert client.ask("DELETE", f"{url}?permanent=true").body == [1, 2]
    assert subject not in client.ask("GET", "/subjects?deleted=true").body


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/subjects/{}/versions", None, (404, 40401)),
        ("GET", "/subjects/{}/versions/1", None, (404, 40401)),
        ("GET", "/schemas/ids/1999999999", None, (404, 40403)),
        ("POST", "/subjects/{}", {"schema": '"string"'}, (404, 40401)),
        ("POST", "/subjects/{}/versions", {"schema": "{"}, (422, 42201)),
        ("POST", "/subjects/{}/versions", {"schema": '{"type":"nope"}'}, (422, 42201)),
        ("PUT", "/config/{}", {"compatibility": "SIDEWAYS"}, (422, 42203)),
        ("GET", "/config/{}", None, (404, 40408)),
        ("DELETE", "/subjects/{}", None, (404, 40401)),
    ],
)
def test_refusals_have_their_codes(
    client: Client, subject: str, method: str, path: str, body: Any, code: tuple[int, int]
) -> None:
    assert client.ask(method, path.format(subject), body).code == code


def test_a_version_is_a_number(client: Client, subject: str, name: str) -> None:
    client.register(subject, record(name=name))
    for version in ("0", "x", "2147483648"):
        assert client.ask("GET", f"/subjects/{subject}/versions/{version}").code == (422, 42202)
    assert client.ask("GET", f"/subjects/{subject}/versions/9").code == (404, 40402)


def test_the_global_level_and_mode_are_told(client: Client) -> None:
    assert "compatibilityLevel" in client.ask("GET", "/config").body
    assert client.ask("GET", "/mode").body == {"mode": "READWRITE"}
