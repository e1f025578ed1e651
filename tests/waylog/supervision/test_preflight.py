"""Mistakes that are refused before anything starts, and settings that are accepted."""

from __future__ import annotations

import resource
import sqlite3
from pathlib import Path

import pytest
import trustme

from tests.small_disk import small_disk
from waylog.cli import CommandError, check_words
from waylog.config import ConfigError, DataDirectory
from waylog.history.storage_url import check_storage_url
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
    check_storage_url("--history", url)


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
        check_storage_url("--history", url)


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
        ("gateway --import-bytes-max -1", "--import-bytes-max must be 0 or more"),
        ("gateway --append-timeout 0", "--append-timeout must be more than 0"),
        ("gateway --devices-per-user 0", "--devices-per-user must be 1 or more"),
        ("gateway --error-bytes-per-user 0", "--error-bytes-per-user must be 1 or more"),
        ("gateway --viewers-per-user 0", "--viewers-per-user must be 1 or more"),
        ("gateway --viewers-per-address 0", "--viewers-per-address must be 1 or more"),
        ("gateway --proxy-protocol", "--proxy-protocol needs --trusted-proxy"),
        ("gateway --trusted-proxy nonsense", "--trusted-proxy: "),
        ("gateway --host a/b", "--host: "),
        ("gateway --schema-registry-config /dev/null", "schema.registry.url is missing"),
        ("gateway --schema-registry-config /none", "/none: cannot be read"),
        ("gateway --push-contact nonsense", "--push-contact is a mailto:"),
        ("gateway --map-url https://x/{{z}}/{{x}}", "--map-url: https://x/{z}/{x}: {y} is missing"),
        ("gateway --map-attribution me", "--map-attribution needs --map-url"),
        ("gateway --satellite-url ftp://x", "--satellite-url: ftp://x: a URL begins with https"),
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
        ("gateway --mqtt-map plant/+=t:{{9}}", "has level 9, and topics of 'plant/\\+' have 2"),
        ("gateway --history s3:/x", "--history s3:/x: a URL begins with s3://"),
        ("gateway --places hdfs:/x", "--places hdfs:/x: a URL begins with hdfs://"),
        ("gateway --mqtts :0 --tls-certificate {pem} --tls-key {key} --mqtt none", "needs --mqtt,"),
        ("gateway --tls-certificate {pem} --tls-key {key}", "need --mqtts, the address"),
        ("gateway --tls-client-ca {pem}", "--tls-client-ca needs --mqtts, --tls-cert"),
        ("gateway --mqtt none --mqtt-keep-alive 9", "--mqtt-keep-alive needs --mqtt, which is"),
        ("gateway --mqtt-other-server a:b", "--mqtt-other-server 'a:b': HOST or HOST:PORT"),
        ("gateway --mqtt-moved-to=", "--mqtt-moved-to '': HOST or HOST:PORT"),
        ("gateway --mqtt-moved-to a --mqtt-other-server b", "goes without --mqtt-other-server"),
        ("gateway --append-timeout inf", "--append-timeout must be more than 0"),
        ("gateway --geo-url nonsense", "--geo-url nonsense: http"),
        ("gateway --history ftp://h/x", "gateway: --history ftp://h/x: a folder, or"),
        ("gateway --places hdfs://h/x", "gateway: --places hdfs://h/x: say webhdfs"),
        ("gateway --resolver-group=", "--resolver-group '': a name"),
        ("gateway --relay /none/socket", "--relay /none/socket: there is no folder /none"),
        ("gateway --edge /none/socket", "--edge /none/socket: there is no folder /none"),
        ("gateway --edge {pem}", "--edge .*: it is a file, not a socket"),
        ("bridge --mqtt h:1 --filter a/#/b", "--filter 'a/#/b' is not a topic filter"),
        ("bridge --mqtt h:1 --share a/b", "--share 'a/b': a name without"),
        ("bridge --mqtt h:1 --client-id=", "--client-id '': a name"),
        ("bridge --mqtt h:0", "--mqtt h:0: the port of the cluster"),
        ("bridge --mqtt h:1 --password-file {pem}", "--password-file needs --user"),
        ("resolver --group=", "--group '': a name"),
        ("resolver --movement-threshold inf", "--movement-threshold inf: a finite number"),
        ("resolver --fallback-wait -1", "--fallback-wait is at least 0"),
        ("resolver --fallback-rate 5", "--fallback-rate needs --fallback"),
        ("resolver --restart", "--restart is for resolving again"),
        ("resolver --fallback photo", "geopy has no such geocoder; it has .*, photon, "),
        ("history run --trigger-seconds inf", "--trigger-seconds inf: a finite number"),
        ("history run --out {folder} --batch-rows 0", "--batch-rows is at least 1"),
        ("history run --out {pem}", "--out .*: nothing can be written there .*it is a file"),
        ("history run --out {folder} --places ftp://x/y", "--places ftp://x/y: a folder, or"),
        ("history run --out {folder} --master nonsense", "--master nonsense: local"),
        ("history run --out {folder} --jars /none", "--jars /none: there is no such file"),
        ("history run --out {folder} --packages a:b", "--packages a:b: GROUP:ARTIFACT:VER"),
        ("history run --out {folder} --engine arrow --jars {pem}", "--jars is for --engine spark"),
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
    words: str, reason: str, tmp_path: Path
) -> None:
    issued = trustme.CA().issue_cert("localhost")
    names = {"folder": tmp_path / "folder", "pem": tmp_path / "pem", "key": tmp_path / "key"}
    issued.cert_chain_pems[0].write_to_path(names["pem"])
    issued.private_key_pem.write_to_path(names["key"])
    with pytest.raises((ConfigError, CommandError), match=reason):
        check_words(words.format_map(names).split())


def test_jars_may_be_named_in_every_form_that_spark_understands(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.touch()
    words = ["history", "run", "--out", str(tmp_path / "out"), "--jars"]
    for jars in (f"{jar}", f"{jar}, {jar}", f"{tmp_path}/*.jar", f"file:{jar}"):
        check_words([*words, jars])
    for jars in ("local:/opt/spark/a.jar", "https://example.org/a.jar"):
        check_words([*words, jars])
