"""The servers that connectors are measured with."""

from __future__ import annotations

import http.client
import time
from pathlib import Path
from urllib.parse import urlsplit

from load_tests.benches.connect.targets import answering_server


def test_the_http_server_answers_each_request_and_notes_the_ids(tmp_path: Path) -> None:
    ids = tmp_path / "ids"
    with answering_server(ids) as server:
        address = urlsplit(server.url)
        assert address.hostname is not None
        assert address.port is not None
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        deadline = time.monotonic() + 60
        while True:
            try:
                connection.connect()
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline, "the server does not listen"
                time.sleep(0.02)
        for number in range(3):
            connection.request("POST", "/", body=f'{{"id":"fix{number}"}}')
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"ok")
        assert server.requests == 3
        connection.close()
    assert ids.read_text() == "fix0\nfix1\nfix2\n"
