"""Properties of the sink, and the secrets among them."""

from __future__ import annotations

import html
import json
import logging
import socket
import threading
from collections.abc import Callable
from urllib.parse import quote

import pytest

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.http.http_sink import HttpSinkConnector
from consumers.connect.plugins.registry import ConnectorRegistry
from tests.consumers.connect.http.http_server import HttpServer
from tests.consumers.connect.http.running_sink import MakeSink


def test_secrets_are_in_no_message(
    make_sink: MakeSink, server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = ["s3cr3t-path-token", "s3cr3t-query", "s3cr3t-bearer", "s3cr3t-header"]
    sink = make_sink(
        url=f"{server.url}/hook/{secrets[0]}?key={secrets[1]}",
        authorization_type="bearer",
        bearer_token=secrets[2],
        headers_X__Key=secrets[3],
        max_retries="0",
    )
    server.answer = lambda seen: (400, f"{seen.path} {seen.headers}")
    sink.put(1)
    server.answer = lambda seen: (500, f"{seen.path} {seen.headers}")
    sink.put(2)
    server.stop()
    with pytest.raises(ConnectException) as raised:
        sink.put(3)
    assert len(sink.reasons) == 2
    text = "".join(sink.reasons) + str(raised.value) + caplog.text
    assert not [each for each in secrets if each in text]


def test_secrets_are_in_no_message_about_an_answer_that_is_none_of_http(
    make_sink: MakeSink,
) -> None:
    secret = "s3cr3t-bearer"

    def answer(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(64 * 1024)
                connection.sendall(b"HTTP/1.1 200 OK\r\nyou sent " + secret.encode() + b"\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/in"
        sink = make_sink(url=url, authorization_type="bearer", bearer_token=secret, max_retries="0")
        with pytest.raises(ConnectException) as raised:
            sink.put(1)
        thread.join(10)
    assert "you sent [hidden]" in str(raised.value)
    assert secret not in str(raised.value)


@pytest.mark.parametrize(
    "form", [json.dumps, html.escape, quote, lambda text: html.escape(text, quote=False)]
)
def test_a_secret_is_hidden_however_the_server_escapes_it(
    make_sink: MakeSink, server: HttpServer, form: Callable[[str], str]
) -> None:
    secret = "abc\"d<e>f&gh'ij/k"
    sink = make_sink(headers_X__Key=secret)
    server.answer = lambda _: (400, f"your key is {form(secret)} or so")
    sink.put(1)
    assert "your key is" in sink.reasons[0]
    assert "abc" not in sink.reasons[0]


def errors(**properties: str) -> dict[str, list[str]]:
    given = {"url": "https://h/x"} | {
        name.replace("__", "-").replace("_", "."): value for name, value in properties.items()
    }
    found = HttpSinkConnector().validate(given)
    return {name: value.errors for name, value in found.items() if value.errors}


@pytest.mark.parametrize(
    ("properties", "name", "reason"),
    [
        ({"url": "ftp://h"}, "url", "http://HOST"),
        ({"url": "https://"}, "url", "http://HOST"),
        ({"url": "https://h:99999/"}, "url", "http://HOST"),
        ({"url": "http://2130706433/"}, "url", "four decimal numbers"),
        ({"url": "https://${x}/"}, "url", "cannot depend on the record"),
        ({"url": "https://a:s3cr3t@h/"}, "url", "connection.password"),
        ({"url": "https://h/a b"}, "url", "percent-encoded"),
        ({"url": "https://h/${@x}"}, "url", "none of @key"),
        ({"url": "https://h/${id}", "behavior_on_null_values": "delete"},
         "behavior.on.null.values", "has no ${id}"),
        ({"template": "tracar"}, "template", "must be one of: none, traccar"),
        ({"method": "TRACE"}, "method", "must be one of"),
        ({"authorization_type": "basic"}, "connection.user", "needs it"),
        ({"authorization_type": "bearer"}, "bearer.token", "needs it"),
        ({"authorization_type": "bearer", "bearer_token": "s3cr3t\nb"}, "bearer.token", "control"),
        ({"template": "traccar", "batch_max_records": "5"}, "batch.max.records", "one record"),
        ({"method": "GET", "batch_max_records": "5"}, "batch.max.records", "one record"),
        ({"template": "traccar", "body_template": "x"}, "body.template", "makes the body"),
        ({"template": "traccar", "behavior_on_null_values": "delete"},
         "behavior.on.null.values", "deletes nothing"),
        ({"body_template": "${}"}, "body.template", "has no name"),
        ({"device_names": "anna"}, "device.names", "USER/DEVICE=NAME"),
        ({"signature_secret": "whsec_!"}, "signature.secret", "not Base64"),
        ({"headers_Host": "x"}, "headers.Host", "writes this header itself"),
        ({"headers_a b": "x"}, "headers.a b", "no name of a header"),
        ({"headers_X": "s3cr3t\r\nB: c"}, "headers.X", "control characters"),
        ({"connections_max": "0"}, "connections.max", "at least 1"),
        ({"request_timeout_ms": "1"}, "request.timeout.ms", "at least 100"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(properties: dict[str, str], name: str, reason: str) -> None:
    found = errors(**properties)
    assert list(found) == [name]
    assert reason in found[name][0]
    assert name in found[name][0]
    assert "s3cr3t" not in str(found)
    given = {"url": "https://h/x"} | {
        each.replace("__", "-").replace("_", "."): value for each, value in properties.items()
    }
    with pytest.raises(ConfigException) as raised:
        HttpSinkConnector().start(given)
    assert "s3cr3t" not in str(raised.value)


def test_the_url_is_all_that_is_required() -> None:
    assert errors() == {}
    assert (
        'Missing required configuration "url"' in HttpSinkConnector().validate({})["url"].errors[0]
    )


@pytest.mark.parametrize("name", ["HttpSink", "HttpSinkConnector"])
def test_the_connector_is_found_by_its_names(name: str) -> None:
    assert ConnectorRegistry().find(name).connector is HttpSinkConnector
