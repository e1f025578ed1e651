"""Mistakes that are refused before anything starts, and settings that are accepted."""

from __future__ import annotations

import resource
import sqlite3
from pathlib import Path

import pytest

from tests.small_disk import small_disk
from waylog.cli import CommandError, check_words
from waylog.config import ConfigError, DataDirectory
from waylog.supervision import preflight


def test_an_intact_folder_is_taken_and_left_as_it_is(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "new" / "data")
    preflight.check_data(data)
    assert list(data.root.iterdir()) == []
    database = sqlite3.connect(data.users)
    database.execute("CREATE TABLE users (name)")
    database.commit()
    database.close()
    preflight.check_data(data)
    assert [each.name for each in data.root.iterdir()] == ["users.db"]


def test_a_damaged_database_of_users_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    data.users.write_bytes(b"rubbish" * 1000)
    with pytest.raises(CommandError, match="is not an intact database of users"):
        preflight.check_data(data)
    assert data.users.read_bytes() == b"rubbish" * 1000


def test_a_disk_without_room_is_refused(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", 4 * 1024 * 1024) as disk,
        pytest.raises(CommandError, match=r"the disk has \d+ MiB left, and 100 are needed"),
    ):
        preflight.check_data(DataDirectory(disk.folder))


@pytest.mark.parametrize(
    ("hard", "refused"),
    [(511, True), (512, False), (resource.RLIM_INFINITY, False)],
)
def test_too_few_open_files_are_refused(
    monkeypatch: pytest.MonkeyPatch, hard: int, refused: bool
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10, hard))
    if refused:
        with pytest.raises(CommandError, match="511 files open here, and 512 are needed"):
            preflight.check_limits()
    else:
        preflight.check_limits()


@pytest.mark.parametrize(
    "url", ["s3://bucket/x", "s3a://bucket/x", "webhdfs://h:1/x", "file:///tmp/x", "gs://b"]
)
def test_a_history_elsewhere_is_taken(url: str) -> None:
    preflight.check_history(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("hdfs://h:8020/x", "say webhdfs://HOST:9870/PATH"),
        ("ftp://h/x", "is expected"),
        ("webhdfs:///x", "names no bucket or host"),
    ],
)
def test_a_history_that_nothing_can_open_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        preflight.check_history(url)


def test_an_index_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"")
    preflight.check_index(tmp_path / "index")
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="waylog geo import"):
            preflight.check_index(path)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("gateway --bootstrap-servers nonsense", "gateway: --bootstrap-servers nonsense"),
        ("gateway --http nonsense", "gateway: .*nonsense"),
        ("gateway --edge /tmp/x --mqtt none", "--edge needs --mqtt"),
        ("gateway --edge /tmp/x --relay /tmp/y", "--edge needs --mqtt, and goes without --relay"),
        ("gateway --view-tail -1", "--view-tail must be 0 or more"),
        ("gateway --append-timeout 0", "--append-timeout must be more than 0"),
        ("gateway --devices-per-user 0", "--devices-per-user must be 1 or more"),
        ("gateway --viewers-per-user 0", "--viewers-per-user must be 1 or more"),
        ("gateway --viewers-per-address 0", "--viewers-per-address must be 1 or more"),
        ("gateway --proxy-protocol", "--proxy-protocol needs --trusted-proxy"),
        ("gateway --trusted-proxy nonsense", "--trusted-proxy: "),
        ("gateway --host a/b", "--host: "),
        ("gateway --push-contact nonsense", "--push-contact is a mailto:"),
        ("gateway --mqtt-workers 0", "--mqtt-workers must be 1 or more"),
        ("gateway --mqtt-connections-per-user 0", "--mqtt-connections-per-user must be 1"),
        ("gateway --mqtt-sessions-per-user 0", "--mqtt-sessions-per-user must be 1 or more"),
        ("gateway --mqtt-queued-per-user 0", "--mqtt-queued-per-user must be 1 or more"),
        ("gateway --mqtt-retained-per-user 0", "--mqtt-retained-per-user must be 1 or more"),
        ("gateway --tls-certificate /none --tls-key /none", "--tls-certificate /none: "),
        ("gateway --tls-certificate /none", "--tls-certificate and --tls-key go together"),
        ("gateway --mqtts 127.0.0.1:0", "--mqtts needs --tls-certificate and --tls-key"),
        ("gateway --tls-client-crl /none", "--tls-client-crl needs --tls-client-ca"),
        ("gateway --mqtt-keep-alive 0", "--mqtt-keep-alive must be 1 to 65535"),
        ("gateway --mqtt-map nonsense", "--mqtt-map: "),
        ("resolver --bootstrap-servers nonsense", "resolver: --bootstrap-servers nonsense"),
        ("resolver --movement-threshold -1", "--movement-threshold is at least 0"),
        ("resolver --resend-after 0", "--resend-after more than 0"),
        ("resolver --report-interval 0", "--report-interval is more than 0"),
        ("resolver --geo /none", "/none"),
        ("resolver --fallback nominatim --fallback-rate 0", "--fallback-rate must be greater"),
        ("resolver --fallback none-such", "--fallback none-such: "),
        ("geo serve --listen nonsense", "geo: .*nonsense"),
        ("geo serve --index /none", "/none"),
        ("geo serve --fallback nominatim --fallback-options 1", "must be a JSON object"),
        ("history run --bootstrap-servers nonsense", "history: --bootstrap-servers nonsense"),
        ("history run --trigger-seconds 0", "--trigger-seconds and --places-interval are more"),
        ("history run --places-interval 0", "--trigger-seconds and --places-interval are more"),
        ("history run --compact-interval -1", "--compact-interval and --compact-settled are at"),
        ("history run --compact-settled -1", "--compact-interval and --compact-settled are at"),
        ("history run --out webhdfs://h:1/x", "name a --checkpoint"),
    ],
)
def test_what_a_process_would_refuse_is_refused_before_the_first_one_starts(
    words: str, reason: str
) -> None:
    with pytest.raises((ConfigError, CommandError), match=reason):
        check_words(words.split())
