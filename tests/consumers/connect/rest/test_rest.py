"""The REST interface, call by call as Kafka Connect's documentation lists them, over real HTTP.

No Kafka cluster is needed: connectors that wait for one run nevertheless.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import BaseTestServer, TestServer

from consumers.connect.configuration.variables import EnvironmentProvider, Variables
from consumers.connect.rest.bodies import BODY_BYTES_MAX
from consumers.connect.rest.server import make_application
from consumers.connect.storage.offset_file import OffsetFile
from consumers.connect.worker.plugin_table import waylog_version
from consumers.connect.worker.standalone import StandaloneWorker
from consumers.connect.worker.worker_settings import worker_settings

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
WAIT_S = 60.0


class Rest:
    """A client of a worker's REST interface."""

    def __init__(
        self, worker: StandaloneWorker, server: BaseTestServer, session: ClientSession
    ) -> None:
        self.worker = worker
        self.server = server
        self.session = session

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        data: bytes | io.BytesIO | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Return status and JSON of an answer; None for an empty one."""
        url = self.server.make_url(path)
        async with self.session.request(
            method, url, json=body, data=data, headers=headers
        ) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def create(self, name: str, **config: str) -> tuple[int, Any]:
        properties = {each.replace("_", "."): text for each, text in config.items()}
        return await self.ask("POST", "/connectors", {"name": name, "config": properties})

    async def state(self, name: str, state: str) -> Any:
        """Wait for a state of a connector and its task, and return the whole answer.

        A stopped one has no task; others are shown without it until it is made.
        """
        wanted = [state] if state == "STOPPED" else [state, state]
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            _, found = await self.ask("GET", f"/connectors/{name}/status")
            states = [found["connector"]["state"], *(each["state"] for each in found["tasks"])]
            if states == wanted:
                return found
            await asyncio.sleep(0.01)
        pytest.fail(f"not {state}: {found}")


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    """The worker's properties; a test may change them before it asks for `rest`."""
    return {
        "bootstrap.servers": "127.0.0.1:9",
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "offset.storage.file.filename": str(tmp_path / "offsets.json"),
        "task.shutdown.graceful.timeout.ms": "20000",
    }


@pytest.fixture
async def rest(properties: dict[str, str]) -> AsyncIterator[Rest]:
    variables = Variables({"env": EnvironmentProvider({"SECRET": "abcdef", "TASKS": "0"})})
    settings = worker_settings(properties, variables)
    worker = StandaloneWorker(
        settings, variables, OffsetFile(settings.offset_file), worker_id="w:8083",
        cluster_id="cluster",
    )  # fmt: skip
    worker.is_ready = True
    async with TestServer(make_application(worker, "127.0.0.1")) as server, ClientSession() as own:
        yield Rest(worker, server, own)
    await worker.close()


@pytest.fixture
async def source(rest: Rest, tmp_path: Path) -> str:
    """A source connector that waits for its file."""
    status, _ = await rest.create(
        "in", connector_class="FileStreamSource", topic="t", file=str(tmp_path / "in.txt")
    )
    assert status == 201
    return "in"


async def test_the_worker_tells_what_it_is(rest: Rest) -> None:
    status, found = await rest.ask("GET", "/")
    assert status == 200
    assert found.keys() == {"version", "commit", "kafka_cluster_id"}
    assert found["kafka_cluster_id"] == "cluster"


async def test_the_worker_tells_whether_it_is_ready(rest: Rest) -> None:
    status, found = await rest.ask("GET", "/health")
    assert (status, found["status"]) == (200, "healthy")
    rest.worker.is_ready = False
    status, found = await rest.ask("GET", "/health")
    assert (status, found["status"]) == (503, "starting")


async def test_a_connector_is_created_and_shown(rest: Rest, tmp_path: Path) -> None:
    assert await rest.ask("GET", "/connectors") == (200, [])
    config = {"connector.class": "FileStreamSource", "topic": "t", "file": str(tmp_path / "in")}
    async with rest.session.post(
        rest.server.make_url("/connectors"), json={"name": "in", "config": config}
    ) as response:
        assert response.status == 201
        assert response.headers["Location"] == str(rest.server.make_url("/connectors/in"))
        info = await response.json()
    assert info == {
        "name": "in",
        "config": {**config, "name": "in"},
        "tasks": [{"connector": "in", "task": 0}],
        "type": "source",
    }
    assert await rest.ask("GET", "/connectors") == (200, ["in"])
    assert await rest.ask("GET", "/connectors/in") == (200, info)
    assert await rest.ask("GET", "/connectors/in/config") == (200, info["config"])
    _, tasks = await rest.ask("GET", "/connectors/in/tasks")
    task_class = "org.apache.kafka.connect.file.FileStreamSourceTask"
    wanted = {**config, "name": "in", "task.class": task_class}
    assert tasks == [{"id": {"connector": "in", "task": 0}, "config": wanted}]
    assert await rest.ask("GET", "/connectors/in/tasks-config") == (200, {"in-0": wanted})


async def test_a_state_names_the_worker(rest: Rest, source: str) -> None:
    # With the version of its plugin (KIP-891).
    running = {"state": "RUNNING", "worker_id": "w:8083", "version": waylog_version()}
    assert await rest.state(source, "RUNNING") == {
        "name": source,
        "connector": running,
        "tasks": [{"id": 0, **running}],
        "type": "source",
    }
    assert await rest.ask("GET", "/connectors/in/tasks/0/status") == (200, {"id": 0, **running})


@pytest.mark.parametrize("path", ["/connectors", "/connectors/in/tasks", "/connector-plugins"])
async def test_a_path_may_end_with_a_slash(rest: Rest, source: str, path: str) -> None:
    assert await rest.ask("GET", path + "/") == await rest.ask("GET", path)


async def test_connectors_are_listed_with_state_and_configuration(rest: Rest, source: str) -> None:
    state = await rest.state(source, "RUNNING")
    _, info = await rest.ask("GET", "/connectors/in")
    path = "/connectors?expand=status&expand=info&expand=other"
    assert await rest.ask("GET", path) == (200, {"in": {"status": state, "info": info}})


async def test_a_connector_exists_once(rest: Rest, source: str, tmp_path: Path) -> None:
    answer = await rest.create(source, connector_class="FileStreamSource", topic="t")
    assert answer == (409, {"error_code": 409, "message": "Connector in already exists"})


async def test_what_is_wrong_with_a_configuration_is_told(rest: Rest) -> None:
    status, found = await rest.create("in", connector_class="FileStreamSource", tasks_max="0")
    assert status == 400
    assert found["error_code"] == 400
    assert found["message"] == (
        "Connector configuration is invalid and contains the following 2 error(s):\n"
        'Missing required configuration "topic" which has no default value.\n'
        "Invalid value 0 for configuration tasks.max: Value must be at least 1\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    ) or sorted(found["message"].split("\n")[1:3]) == sorted(
        [
            'Missing required configuration "topic" which has no default value.',
            "Invalid value 0 for configuration tasks.max: Value must be at least 1",
        ]
    )


async def test_an_unknown_class_is_told_which_there_are(rest: Rest) -> None:
    status, found = await rest.create("in", connector_class="JdbcSink", topics="t")
    assert status == 400
    assert found["message"].startswith(
        "Failed to find any class that implements Connector and which name matches JdbcSink, "
        "available connectors are: "
    )
    status, found = await rest.create("in", topics="t")
    assert status == 400
    assert "contains no connector type" in found["message"]


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/connectors/x", "Connector x not found"),
        ("GET", "/connectors/x/config", "Connector x not found"),
        ("GET", "/connectors/x/tasks", "Connector x not found"),
        ("GET", "/connectors/x/status", "No status found for connector x"),
        ("GET", "/connectors/x/tasks/0/status", "No status found for task x-0"),
        ("GET", "/connectors/x/offsets", "Connector x not found"),
        ("DELETE", "/connectors/x/offsets", "Connector x not found"),
        ("DELETE", "/connectors/x", "Connector x not found"),
        ("PUT", "/connectors/x/pause", "Unknown connector x"),
        ("PUT", "/connectors/x/resume", "Unknown connector x"),
        ("PUT", "/connectors/x/stop", "Connector x not found"),
        ("POST", "/connectors/x/restart", "Connector x not found"),
        ("POST", "/connectors/x/restart?includeTasks=true", "Unknown connector: x"),
        ("POST", "/connectors/x/tasks/0/restart", "Connector x not found"),
        ("GET", "/connector-plugins/x/config", "Unknown plugin x."),
        ("GET", "/admin/loggers/x.y", "Logger x.y not found."),
        ("GET", "/nowhere", "HTTP 404 Not Found"),
        ("GET", "/connectors/x/tasks/one/status", "HTTP 404 Not Found"),
    ],
)
async def test_what_does_not_exist_is_not_found(
    rest: Rest, method: str, path: str, message: str
) -> None:
    assert await rest.ask(method, path) == (404, {"error_code": 404, "message": message})


async def test_a_method_that_a_path_does_not_have_is_refused(rest: Rest) -> None:
    url = rest.server.make_url("/connectors/x/pause")
    async with rest.session.get(url) as response:
        assert response.status == 405
        assert "PUT" in response.headers["Allow"]
        answer = await response.json()
        assert answer == {"error_code": 405, "message": "HTTP 405 Method Not Allowed"}


@pytest.mark.parametrize(
    ("data", "content_type", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"name=x", "application/x-www-form-urlencoded", 415),
        (b"{", "application/json", 500),
        (b"", "application/json", 500),
        (b"[]", "application/json", 500),
        (b'"\xff"', "application/json", 500),
        (b"1" * (BODY_BYTES_MAX + 1), "application/json", 413),
    ],
)
async def test_a_body_that_is_no_connector_is_refused(
    rest: Rest, data: bytes, content_type: str, status: int
) -> None:
    headers = {"Content-Type": content_type}
    body = io.BytesIO(data) if len(data) > BODY_BYTES_MAX else data
    answer = await rest.ask("POST", "/connectors", data=body, headers=headers)
    assert answer[0] == status
    assert answer[1]["error_code"] == status


async def test_a_configuration_is_put_as_a_whole(rest: Rest, source: str) -> None:
    config = {"connector.class": SOURCE, "topic": "other"}
    status, found = await rest.ask("PUT", "/connectors/in/config", config)
    assert status == 200
    assert found["config"] == {**config, "name": "in"}
    status, found = await rest.ask("PUT", "/connectors/new/config", config)
    assert (status, found["name"]) == (201, "new")
    status, found = await rest.ask("PUT", "/connectors/new/config", {**config, "name": "in"})
    assert status == 400
    assert "doesn't match connector name in the URL" in found["message"]


async def test_a_configuration_is_patched(rest: Rest, source: str) -> None:
    _, before = await rest.ask("GET", "/connectors/in/config")
    patch = {"batch.size": "5", "file": None}
    status, found = await rest.ask("PATCH", "/connectors/in/config", patch)
    assert status == 200
    del before["file"]
    assert found["config"] == {**before, "batch.size": "5"}
    status, found = await rest.ask("PATCH", "/connectors/in/config", {"tasks.max": "x"})
    assert status == 400
    assert await rest.ask("PATCH", "/connectors/x/config", {}) == (
        404, {"error_code": 404, "message": "Connector x not found"}
    )  # fmt: skip


async def test_a_connector_pauses_stops_and_goes_on(rest: Rest, source: str) -> None:
    await rest.state(source, "RUNNING")
    assert await rest.ask("PUT", "/connectors/in/pause") == (202, None)
    assert len((await rest.state(source, "PAUSED"))["tasks"]) == 1
    assert await rest.ask("PUT", "/connectors/in/resume") == (202, None)
    await rest.state(source, "RUNNING")
    assert await rest.ask("PUT", "/connectors/in/stop") == (204, None)
    assert (await rest.state(source, "STOPPED"))["tasks"] == []
    assert await rest.ask("GET", "/connectors/in/tasks") == (200, [])
    assert await rest.ask("PUT", "/connectors/in/stop") == (204, None)
    assert await rest.ask("PUT", "/connectors/in/resume") == (202, None)
    async with asyncio.timeout(WAIT_S):
        while not (await rest.ask("GET", "/connectors/in/tasks"))[1]:
            await asyncio.sleep(0.01)
    await rest.state(source, "RUNNING")


async def test_a_connector_may_begin_stopped(rest: Rest) -> None:
    config = {"connector.class": SOURCE, "topic": "t"}
    body = {"name": "in", "config": config, "initial_state": "STOPPED"}
    status, found = await rest.ask("POST", "/connectors", body)
    assert (status, found["tasks"]) == (201, [])
    await rest.state("in", "STOPPED")


async def test_a_connector_is_deleted(rest: Rest, source: str) -> None:
    assert await rest.ask("DELETE", "/connectors/in") == (204, None)
    assert await rest.ask("GET", "/connectors") == (200, [])
    assert (await rest.ask("GET", "/connectors/in/status"))[0] == 404


async def test_a_connector_and_its_tasks_restart(rest: Rest, source: str) -> None:
    await rest.state(source, "RUNNING")
    assert await rest.ask("POST", "/connectors/in/restart") == (204, None)
    status, found = await rest.ask(
        "POST", "/connectors/in/restart?includeTasks=true&onlyFailed=false"
    )
    assert status == 202
    assert found["connector"]["state"] == found["tasks"][0]["state"] == "RESTARTING"
    await rest.state(source, "RUNNING")
    assert await rest.ask("POST", "/connectors/in/tasks/0/restart") == (204, None)
    await rest.state(source, "RUNNING")
    assert await rest.ask("POST", "/connectors/in/tasks/7/restart") == (
        404, {"error_code": 404, "message": "Task in-7 not found"}
    )  # fmt: skip


async def test_offsets_of_a_source_are_shown_altered_and_reset(
    rest: Rest, source: str, tmp_path: Path
) -> None:
    partition = {"filename": str(tmp_path / "in.txt")}
    assert await rest.ask("GET", "/connectors/in/offsets") == (200, {"offsets": []})
    wanted = {"offsets": [{"partition": partition, "offset": {"position": 5}}]}
    status, found = await rest.ask("PATCH", "/connectors/in/offsets", wanted)
    assert status == 400
    assert "must be in the STOPPED state" in found["message"]
    await rest.ask("PUT", "/connectors/in/stop")
    assert await rest.ask("PATCH", "/connectors/in/offsets", wanted) == (
        200, {"message": "The offsets for this connector have been altered successfully"}
    )  # fmt: skip
    assert await rest.ask("GET", "/connectors/in/offsets") == (200, wanted)
    bad = {"offsets": [{"partition": partition, "offset": {"position": -5}}]}
    status, found = await rest.ask("PATCH", "/connectors/in/offsets", bad)
    assert (status, found["error_code"]) == (500, 500)
    assert "non-negative" in found["message"]
    assert (await rest.ask("PATCH", "/connectors/in/offsets", {"offsets": []}))[0] == 400
    assert await rest.ask("DELETE", "/connectors/in/offsets") == (
        200, {"message": "The offsets for this connector have been reset successfully"}
    )  # fmt: skip
    assert await rest.ask("GET", "/connectors/in/offsets") == (200, {"offsets": []})


async def test_plugins_are_listed(rest: Rest) -> None:
    _, connectors = await rest.ask("GET", "/connector-plugins")
    listed = [(each["class"], each["type"]) for each in connectors]
    assert {(SINK, "sink"), (SOURCE, "source")} <= set(listed)
    assert listed == sorted(listed, key=lambda each: (each[1] == "source", each[0]))
    assert all(each["version"] for each in connectors)
    _, all_of_them = await rest.ask("GET", "/connector-plugins?connectorsOnly=false")
    assert {each["type"] for each in all_of_them} == {
        *("sink", "source", "transformation", "predicate", "converter", "header_converter")
    }


@pytest.mark.parametrize(
    ("plugin", "name"),
    [
        ("FileStreamSink", "file"),
        (SOURCE, "batch.size"),
        ("JsonConverter", "schemas.enable"),
        ("org.apache.kafka.connect.transforms.HoistField$Value", "field"),
    ],
)
async def test_the_properties_of_a_plugin_are_shown(rest: Rest, plugin: str, name: str) -> None:
    status, found = await rest.ask("GET", f"/connector-plugins/{plugin}/config")
    assert status == 200
    assert name in [each["name"] for each in found]


async def test_a_configuration_is_validated(rest: Rest) -> None:
    path = "/connector-plugins/FileStreamSink/config/validate"
    config = {"connector.class": SINK, "name": "out", "topics": "t"}
    status, found = await rest.ask("PUT", path, config)
    assert status == 200
    assert (found["name"], found["error_count"]) == (SINK, 0)
    status, found = await rest.ask("PUT", path, {**config, "topics": "", "tasks.max": "x"})
    errors = {
        each["value"]["name"]: each["value"]["errors"]
        for each in found["configs"]
        if each["value"]["errors"]
    }
    assert found["error_count"] == 4
    assert errors.keys() == {"topics", "topics.regex", "tasks.max"}
    status, found = await rest.ask("PUT", path, {**config, "connector.class": SOURCE})
    assert status == 400
    assert "does not match request type FileStreamSink" in found["message"]
    assert (await rest.ask("PUT", path, {"topics": "t"}))[0] == 400


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("consumer.override.fetch.mni.bytes", "1", 'No such configuration property: "fetch.mni'),
        ("consumer.override.max.poll.records", "x", "a number of at least 1"),
        ("producer.override.acks", "many", 'property "request.required.acks"'),
        ("consumer.override.ssl.keystore.location", "a.jks", "PEM is expected"),
    ],
)
async def test_properties_of_clients_are_validated(
    rest: Rest, name: str, value: str, message: str
) -> None:
    path = "/connector-plugins/FileStreamSink/config/validate"
    config = {"connector.class": SINK, "name": "out", "topics": "t"}
    _, found = await rest.ask("PUT", path, {**config, name: value})
    assert found["error_count"] == 1
    (errors,) = (
        each["value"]["errors"] for each in found["configs"] if each["value"]["name"] == name
    )
    assert errors[0].startswith(f"Invalid value for configuration {name}: ")
    assert message in errors[0]
    good = {
        "consumer.override.fetch.min.bytes": "5",
        "consumer.override.max.poll.records": "7",
        "consumer.override.group.id": "g",
        "producer.override.compression.type": "zstd",
        "producer.override.security.protocol": "SASL_SSL",
        "admin.override.sasl.jaas.config": 'x required username="u" password="p";',
    }
    _, found = await rest.ask("PUT", path, {**config, **good})
    assert found["error_count"] == 0


async def test_a_secret_is_never_shown_for_what_it_is(rest: Rest) -> None:
    config = {
        "connector.class": SOURCE, "topic": "${env:SECRET}", "tasks.max": "${env:TASKS}",
        "name": "in",
    }  # fmt: skip
    path = "/connector-plugins/FileStreamSource/config/validate"
    answers = [
        await rest.ask("PUT", path, config),
        await rest.ask("PUT", "/connectors/in/config", config),
        await rest.ask("PUT", "/connectors/in/config", {**config, "tasks.max": "1"}),
        await rest.ask("GET", "/connectors/in"),
        await rest.ask("GET", "/connectors/in/tasks"),
    ]
    assert [status for status, _ in answers] == [200, 400, 201, 200, 200]
    assert "abcdef" not in repr(answers)
    assert answers[-1][1][0]["config"]["topic"] == "${env:SECRET}"


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_an_unknown_class_is_not_shown_if_it_is_a_secret(rest: Rest, method: str) -> None:
    config = {"connector.class": "${env:SECRET}", "topic": "t", "name": "in"}
    if method == "POST":
        body: dict[str, Any] = {"name": "in", "config": config}
        status, found = await rest.ask("POST", "/connectors", body)
    else:
        status, found = await rest.ask("PUT", "/connectors/in/config", config)
    assert status == 400
    assert "abcdef" not in found["message"]
    assert "Invalid value ${env:SECRET} for configuration connector.class" in found["message"]


async def test_topics_are_noted_and_forgotten(rest: Rest, source: str) -> None:
    rest.worker.herder.topic_is_used(source, "t")
    assert await rest.ask("GET", "/connectors/in/topics") == (200, {"in": {"topics": ["t"]}})
    assert await rest.ask("PUT", "/connectors/in/topics/reset") == (202, None)
    assert await rest.ask("GET", "/connectors/in/topics") == (200, {"in": {"topics": []}})


class TestWithoutTopicTracking:
    @pytest.fixture
    def properties(self, properties: dict[str, str]) -> dict[str, str]:
        return {**properties, "topic.tracking.enable": "false"}

    async def test_topics_are_not_shown(self, rest: Rest) -> None:
        answer = {"error_code": 403, "message": "Topic tracking is disabled."}
        assert await rest.ask("GET", "/connectors/in/topics") == (403, answer)
        assert await rest.ask("PUT", "/connectors/in/topics/reset") == (403, answer)


class TestWithoutOverrides:
    @pytest.fixture
    def properties(self, properties: dict[str, str]) -> dict[str, str]:
        return {**properties, "connector.client.config.override.policy": "None"}

    async def test_a_connector_cannot_set_properties_of_clients(self, rest: Rest) -> None:
        status, found = await rest.ask(
            "PUT",
            "/connectors/out/config",
            {"connector.class": SINK, "topics": "t", "consumer.override.group.id": "g"},
        )
        assert status == 400
        assert "The 'None' policy does not allow 'group.id' to be overridden" in found["message"]


async def test_levels_of_loggers_are_shown_and_set(rest: Rest) -> None:
    child = logging.getLogger("tests.connect.levels.child")
    path = "/admin/loggers/tests.connect.levels"
    status, changed = await rest.ask("PUT", path, {"level": "debug"})
    assert (status, changed) == (200, ["tests.connect.levels", child.name])
    assert child.getEffectiveLevel() == logging.DEBUG
    _, found = await rest.ask("GET", path)
    assert found["level"] == "DEBUG"
    assert isinstance(found["last_modified"], int)
    _, everything = await rest.ask("GET", "/admin/loggers")
    assert everything["tests.connect.levels"] == found
    assert "root" in everything
    assert (await rest.ask("PUT", path, {}))[0] == 400
    assert await rest.ask("PUT", path, {"level": "LOUD"}) == (
        404, {"error_code": 404, "message": "invalid log level 'LOUD'."}
    )  # fmt: skip
    assert await rest.ask("PUT", path + "?scope=cluster", {"level": "WARN"}) == (204, None)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
async def test_pages_of_other_sites_are_refused(rest: Rest, headers: dict[str, str]) -> None:
    status, found = await rest.ask("POST", "/connectors/x/restart", headers=headers)
    assert (status, found["error_code"]) == (403, 403)


class TestWithAnAllowedOrigin:
    @pytest.fixture
    def properties(self, properties: dict[str, str]) -> dict[str, str]:
        return {
            **properties,
            "access.control.allow.origin": "http://console.example",
            "access.control.allow.methods": "GET,PUT",
        }

    async def test_its_pages_may_ask(self, rest: Rest) -> None:
        origin = {"Origin": "http://console.example"}
        url = rest.server.make_url("/connectors")
        async with rest.session.get(url, headers=origin) as response:
            assert response.status == 200
            assert response.headers["Access-Control-Allow-Origin"] == origin["Origin"]
        async with rest.session.options(url, headers=origin) as response:
            assert response.status == 200
            assert response.headers["Access-Control-Allow-Methods"] == "GET,PUT"


async def test_a_name_may_have_any_characters(rest: Rest) -> None:
    name = "a b/c%ü"
    config = {"connector.class": SOURCE, "topic": "t"}
    status, found = await rest.ask("POST", "/connectors", {"name": name, "config": config})
    assert (status, found["name"]) == (201, name)
    url = rest.server.make_url("/").joinpath("connectors")
    async with rest.session.get(f"{url}/a%20b%2Fc%25%C3%BC") as response:
        assert response.status == 200
        assert (await response.json())["name"] == name
