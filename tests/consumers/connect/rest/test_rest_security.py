"""TLS and passwords of the REST interface, on workers that ask each other."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.worker.rest_security import RestListener, rest_security
from tests.certificates import Certificates
from tests.consumers.connect.connect_process import (
    ConnectProcess,
    DistributedProcess,
    wait_until,
)
from waylog.config import Endpoint

MakeGroup = Callable[..., list[DistributedProcess]]
MakeWorker = Callable[..., ConnectProcess]
HTTPS = [RestListener(Endpoint("127.0.0.1", 0), is_tls=True)]
BASIC = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"


class Client:
    """Asks over TLS, with a certificate and a password or without."""

    def __init__(self, authority: Path, certificate: Path | None = None, login: str = "") -> None:
        self._context = ssl.create_default_context(cafile=authority)
        if certificate is not None:
            self._context.load_cert_chain(certificate)
        self._headers = {"Content-Type": "application/json"}
        if login:
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()

    def ask(
        self, worker: ConnectProcess, method: str, path: str, body: Any = None
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(worker.url + path, data, self._headers, method=method)
        context = self._context if worker.url.startswith("https") else None
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        return status, json.loads(text) if text else None


def unique(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def test_workers_ask_each_other_over_tls_with_passwords(
    servers: str, make_group: MakeGroup, certificates: Certificates, tmp_path: Path
) -> None:
    passwords = tmp_path / "passwords.properties"
    passwords.write_text("anna=geheim-4711\nbert=b\n")
    workers = make_group(
        2,
        unique("tls"),
        **{
            "listeners": "https://127.0.0.1:0",
            "listeners.https.ssl.keystore.location": str(certificates.broker),
            "listeners.https.ssl.keystore.type": "PEM",
            "listeners.https.ssl.truststore.location": str(certificates.authority),
            "listeners.https.ssl.truststore.type": "PEM",
            "listeners.https.ssl.client.auth": "required",
            "rest.extension.classes": BASIC,
            "rest.basic.auth.credentials.file": str(passwords),
        },
    )
    for each in workers:
        each.start()
        assert each.url.startswith("https://")
    anna = Client(certificates.authority, certificates.broker, "anna:geheim-4711")
    for number, worker in enumerate(workers):
        text = tmp_path / f"{number}.txt"
        text.touch()
        config = {"connector.class": "FileStreamSource", "topic": unique("t"), "file": str(text)}

        # One of them passes it on to the leader, and to whoever has the task.
        def created(worker: Any = worker, number: int = number, config: Any = config) -> bool:
            return anna.ask(worker, "PUT", f"/connectors/c{number}/config", config)[0] in (200, 201)

        wait_until(created, "it is created", worker)
    for number in range(2):
        for worker in workers:

            def runs(worker: Any = worker, number: int = number) -> bool:
                _, found = anna.ask(worker, "GET", f"/connectors/c{number}/status")
                return [each["state"] for each in found.get("tasks", ())] == ["RUNNING"]

            wait_until(runs, "the task runs", worker)
            assert anna.ask(worker, "POST", f"/connectors/c{number}/restart")[0] in (204, 409)
    with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
        Client(certificates.authority, None, "anna:geheim-4711").ask(workers[0], "GET", "/")
    for login in ("", "anna:wrong", "anna:", "carl:geheim-4711", "carl:", "bert:geheim-4711"):
        client = Client(certificates.authority, certificates.broker, login)
        for path in ("/", "/connectors", "/metrics", "/health", "/connectors/c0/tasks"):
            assert client.ask(workers[0], "GET", path)[0] == 401, (login, path)
        assert client.ask(workers[0], "DELETE", "/connectors/c0")[0] == 401
    # Only what other workers have signed comes without a password.
    nobody = Client(certificates.authority, certificates.broker)
    assert nobody.ask(workers[0], "POST", "/connectors/c0/tasks", [])[0] == 400
    assert nobody.ask(workers[0], "PUT", "/connectors/c0/fence")[0] == 400
    for each in workers:
        assert "geheim-4711" not in each.output
        assert "Traceback" not in each.output


def test_listeners_of_both_kinds(
    servers: str, make_worker: MakeWorker, certificates: Certificates
) -> None:
    worker = make_worker(
        servers,
        **{
            "listeners": "http://127.0.0.1:0,https://127.0.0.1:0",
            "rest.advertised.listener": "https",
            "ssl.keystore.location": str(certificates.broker),
            "ssl.keystore.type": "PEM",
        },
    )
    worker.start()
    assert worker.url.startswith("https://")
    assert Client(certificates.authority).ask(worker, "GET", "/connectors") == (200, [])


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, "ssl.keystore.location is missing"),
        ({"ssl.keystore.location": "/no/such.pem"}, "no such file"),
        ({"ssl.keystore.location": "a.jks"}, "PEM is expected"),
        ({"ssl.client.auth": "perhaps"}, "none, requested or required"),
        ({"rest.extension.classes": "my.Extension"}, "only org.apache"),
        ({"rest.extension.classes": BASIC}, "needs rest.basic.auth.credentials.file"),
        ({"rest.basic.auth.credentials.file": "/x"}, "it needs rest.extension.classes"),
        (
            {"rest.extension.classes": BASIC, "rest.basic.auth.credentials.file": "/no/such"},
            "No such file",
        ),
    ],
)
def test_what_is_wrong_is_told(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigException, match=reason):
        rest_security(properties, HTTPS)
