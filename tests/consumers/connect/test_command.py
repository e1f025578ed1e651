"""The command line of a worker: what is refused, and with which words."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.connect.connect_process import ConnectProcess
from tests.consumers.running import WAYLOG

PROPERTIES = {
    "bootstrap.servers": "127.0.0.1:9",
    "listeners": "http://127.0.0.1:0",
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WAYLOG, "connect", *words], capture_output=True, text=True, check=False, timeout=60
    )


def worker_file(folder: Path, **properties: str | None) -> str:
    """Write a worker's properties; None leaves one out."""
    path = folder / "worker.properties"
    changed = {name.replace("_", "."): text for name, text in properties.items()}
    merged = {**PROPERTIES, "offset.storage.file.filename": str(folder / "offsets"), **changed}
    path.write_text(
        "".join(f"{name}={text}\n" for name, text in merged.items() if text is not None)
    )
    return str(path)


def test_the_help_has_examples() -> None:
    done = run("standalone", "--help")
    assert done.returncode == 0
    assert "waylog connect standalone worker.properties" in done.stdout


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"key_converter": None},
            'Missing required configuration "key.converter" which has no default value.',
        ),
        (
            {"offset.storage.file.filename": None},
            'Missing required configuration "offset.storage.file.filename" which has no default '
            "value.",
        ),
        ({"value_converter": "ThriftConverter"}, "Class ThriftConverter could not be found."),
        ({"listeners": "https://:8083"}, "ssl.keystore.location is missing"),
        ({"listeners": ""}, "at least one URL is expected"),
        ({"bootstrap_servers": "nowhere"}, "HOST:PORT,HOST:PORT... is expected"),
        ({"offset.flush.interval.ms": "x"}, "Invalid value x for configuration offset.flush"),
        ({"config_providers": "vault"}, "configuration config.providers.vault.class"),
    ],
)
def test_properties_that_are_not_valid_are_refused(
    tmp_path: Path, properties: dict[str, str | None], message: str
) -> None:
    done = run("standalone", worker_file(tmp_path, **properties))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert "worker.properties" in done.stderr


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    done = run("standalone", str(tmp_path / "missing"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    done = run("standalone", worker_file(tmp_path), str(tmp_path / "missing.json"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    nameless = tmp_path / "nameless.json"
    nameless.write_text('{"connector.class": "FileStreamSink"}')
    done = run("standalone", worker_file(tmp_path), str(nameless))
    assert done.returncode == 2
    assert "is missing the mandatory 'name' configuration" in done.stderr


def test_damaged_offsets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").write_bytes(b"\xac\xed\x00\x05")
    done = run("standalone", worker_file(tmp_path))
    assert done.returncode == 1
    assert "in Java's own form" in done.stderr


SHARED = {
    "group.id": "g",
    "config.storage.topic": "c",
    "offset.storage.topic": "o",
    "status.storage.topic": "s",
    "offset.storage.file.filename": None,
}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"group.id": None}, 'Missing required configuration "group.id"'),
        ({"status.storage.topic": ""}, "Invalid value  for configuration status.storage.topic"),
        ({"status.storage.topic": "c"}, "have to differ"),
        ({"connect.protocol": "x"}, "Invalid Connect protocol compatibility"),
        ({"exactly.once.source.support": "perhaps"}, "String must be one of (case insensitive)"),
        ({"heartbeat.interval.ms": "9000"}, "less than half of session.timeout.ms"),
        ({"offset.storage.partitions": "0"}, "at least 1, or -1"),
        ({"inter.worker.signature.algorithm": "HmacSHA512"}, "must be present in inter.worker"),
        ({"inter.worker.key.generation.algorithm": "rot13"}, "one of HmacSHA1"),
    ],
)
def test_properties_of_several_workers_are_checked(
    tmp_path: Path, properties: dict[str, str | None], message: str
) -> None:
    done = run("distributed", worker_file(tmp_path, **{**SHARED, **properties}))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_connector_of_the_command_line_that_is_not_valid_ends_the_worker(
    servers: str, make_worker: Callable[..., ConnectProcess], tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    path.write_text('{"name": "out", "connector.class": "FileStreamSink"}')
    worker = make_worker(servers)
    worker.start(path, is_ready=False)
    assert worker.wait() == 1
    assert "connector out: Connector configuration is invalid" in worker.output


def test_unknown_properties_are_told(
    servers: str, make_worker: Callable[..., ConnectProcess]
) -> None:
    worker = make_worker(servers, offset_flush_intervall_ms="5", client_rack="a")
    worker.start()
    assert "property offset.flush.intervall.ms is unknown and is ignored; did you mean offset" in (
        worker.output
    )
    assert "client.rack" not in worker.output
    assert worker.stop(signal.SIGINT) == 0


def test_an_address_in_use_is_refused(
    servers: str, make_worker: Callable[..., ConnectProcess], tmp_path: Path
) -> None:
    worker = make_worker(servers)
    worker.start()
    taken = worker_file(tmp_path, bootstrap_servers=servers, listeners=worker.url)
    done = run("standalone", taken)
    assert done.returncode == 1
    assert "cannot listen on 127.0.0.1:" in done.stderr


def test_a_worker_that_waits_for_its_cluster_can_be_stopped(
    make_worker: Callable[..., ConnectProcess],
) -> None:
    worker = make_worker("127.0.0.1:9")
    worker.start(is_ready=False)
    worker.wait_for("waiting for the Kafka cluster: .*127.0.0.1:9")
    assert worker.stop() == 0
