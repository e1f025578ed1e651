"""Erased data cannot be read anywhere any more, and all other data is unchanged."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from spark.fixes.staging import StagedFile, land
from spark.history.erase import ErasureReport, erase_topics
from spark.history.erasure_applier import counted
from spark.history.files import HistoryFiles
from spark.places.job import write_places
from spark.places.topics import append_edit, publish_places, read_edits
from spark.runtime.tasks import LocalEngine
from tests.ports import reserved_ports
from tests.spark.history.test_compaction import append as append_rows
from tests.spark.history.test_compaction import compact, rows_of, some_fixes
from tests.spark.history.test_job import START_MS, history
from tests.spark.places.test_job import table_of, tables_of, write_history
from tests.spark.running import append_fixes, make_fix
from tests.spark.synthetic import make_person
from waylog.cli import main
from waylog.history.erasures import read_erasures
from waylog.history.place_edits import PlaceEdit
from waylog.history.storage import Storage
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.polling import next_messages
from waylog.kafka.topics import (
    ADDRESS,
    FORWARDING,
    FORWARDING_PROGRESS,
    FORWARDING_TOPICS,
    FRIENDSHIP_TOPIC,
    LOCATION,
    PLACE,
    TRIP_TOPICS,
)
from waylog.messages import encode
from waylog.sealing.sealing import (
    ENVIRONMENT,
    is_sealed,
    owner_of_record,
    owners_of_user,
    sealed_if_configured,
)
from waylog.sealing.value_encryption import ensure_master_key, load_master_key
from waylog.sealing.value_keys import KeyRing


def erase(out: Path, *words: str) -> None:
    assert main(["history", "erase", "--out", str(out), "--yes", *words]) == 0


def readable(folder: Path, text: bytes) -> list[str]:
    """Return files that contain a text: names and footers, since zstd hides Parquet's values."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


def test_only_the_device_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = some_fixes(400)
    out = tmp_path / "history"
    append_rows(out, table.slice(0, 200))
    compact(out)
    append_rows(out, table.slice(200))
    capsys.readouterr()
    erase(out, "--device", "u/d3", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == 80
    assert report["files_rewritten"] == report["files_looked_at"] == 3
    left = [row for row in table.to_pylist() if row["device"] != "u/d3"]
    assert rows_of(out) == left
    assert [path.name for path in tmp_path.rglob("*") if path.suffix == ".tmp"] == []
    # Only the list that keeps the device out may contain its name.
    assert readable(out, b"u/d3") == [str(out / "_erased.json")]
    # A repeated batch brings nothing back; a later fix of the device is added.
    append_rows(out, table.slice(300))
    assert rows_of(out) == left
    compact(out)
    assert rows_of(out) == left
    erase(out, "--device", "u/d3", "--json")
    assert json.loads(capsys.readouterr().out)["rows"] == 0


def test_a_device_of_a_user_is_not_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "history"
    append_rows(out, some_fixes(400))
    capsys.readouterr()
    erase(out, "--user", "u", "--device", "d3", "--device", "u/d4", "--json")
    assert json.loads(capsys.readouterr().out)["devices"] == ["u/d3", "u/d4"]
    assert {row["device"] for row in rows_of(out)} == {"u/d0", "u/d1", "u/d2"}
    left = rows_of(out)
    for words in (
        ["--device", "d1"],
        ["--device", "u/"],
        ["--user", "u", "--device", "other/d1"],
        ["--user", "u", "--device", ""],
        ["--user", "u", "--user", "v", "--device", "d1"],
    ):
        assert main(["history", "erase", "--out", str(out), "--yes", *words]) != 0
        assert "--device" in capsys.readouterr().err
    assert rows_of(out) == left
    erase(out, "--user", "u")
    assert rows_of(out) == []


def test_a_day_may_be_left_without_anything(tmp_path: Path) -> None:
    rows = [row for row in some_fixes(50).to_pylist() if row["device"] == "u/d1"]
    table = some_fixes(50)
    out = tmp_path / "history"
    append_rows(out, table.from_pylist(rows, schema=table.schema))
    compact(out)
    erase(out, "--user", "u")
    assert rows_of(out) == []
    compact(out)
    assert rows_of(out) == []


def test_places_of_the_device_go_with_its_history(tmp_path: Path) -> None:
    people = {f"u{seed}/p": make_person(seed, days=8) for seed in range(3)}
    out, places, alone = tmp_path / "history", tmp_path / "places", tmp_path / "alone"
    write_history(out, table_of(people))
    write_places(LocalEngine(1), str(out), str(places))
    erase(out, "--device", "u1/p", "--places", str(places))
    write_places(LocalEngine(1), str(out), str(alone))
    assert tables_of(places) == tables_of(alone)
    assert {row["device"] for row in tables_of(places)["visits"]} == {"u0/p", "u2/p"}
    assert {row["device"] for row in tables_of(places)["places"]} == {"u0/p", "u2/p"}


def test_it_has_to_be_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append_rows(tmp_path, some_fixes(10))
    assert main(["history", "erase", "--out", str(tmp_path), "--device", "u/d3"]) == 1
    assert "can not be undone" in capsys.readouterr().err
    assert len(rows_of(tmp_path)) == 10


def newest_values(servers: str, topic: str) -> dict[bytes | None, bytes | None]:
    consumer = Consumer(consumer_config(servers, "test", "test"))
    found: dict[bytes | None, bytes | None] = {}
    try:
        for partition in consumer.list_topics(topic, timeout=60).topics[topic].partitions:
            where = TopicPartition(topic, partition, 0)
            consumer.assign([where])
            end = consumer.get_watermark_offsets(where, timeout=60)[1]
            count = 0
            while count < end:
                for message in next_messages(consumer, 100, 1):
                    assert message.error() is None
                    found[message.key()] = message.value()
                    count += 1
        return found
    finally:
        consumer.close()


def test_the_log_forgets_what_it_can_and_the_report_says_what_it_cannot(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, places = tmp_path / "history", tmp_path / "places"
    devices = ("demo/phone", "other/phone")
    append_fixes(
        log,
        [
            make_fix(device, START_MS + number * 120_000)
            for number in range(1000)
            for device in devices
        ],
    )
    ensure_topics(log, TRIP_TOPICS)
    producer = Producer(producer_config(log, "test"))
    for device in devices:
        producer.produce(ADDRESS, b'{"device":"x"}', device.encode())
        for each in TRIP_TOPICS:
            producer.produce(each.name, b"{}", f"{device}\n1".encode())
    assert producer.flush(60) == 0
    assert history(log, out, "--engine", "arrow", "--once").process.wait(200) == 0
    write_places(LocalEngine(1), str(out), str(places))
    publish_places(log, str(places), devices)
    for device in devices:
        append_edit(log, PlaceEdit(device=device, place_id="x", lat=1, lon=1, time=1, name="Home"))
    capsys.readouterr()
    words = ("--places", str(places), "--bootstrap-servers", log, "--json")
    erase(out, "--device", "demo/phone", *words)
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == 1000
    assert report["places"] == 1
    assert report["tombstones"] == {
        **{"address": 1, "place": 1, "place-edit": 1, "trip": 1, "trip-day": 1},
    }
    kept = {each["topic"]: each["until"] for each in report["kept"]}
    assert set(kept) == {"location", "event", "error"}
    assert kept["location"] - report["erased"] == pytest.approx(
        # A segment lasts at most a 24th part of the retention.
        7 * 25 * 3_600_000,
        abs=60_000,
    )
    for topic in (ADDRESS, PLACE):
        values = newest_values(log, topic)
        assert values[b"demo/phone"] is None
        assert values[b"other/phone"] is not None
    for each in TRIP_TOPICS:
        values = newest_values(log, each.name)
        assert (values[b"demo/phone\n1"], values[b"other/phone\n1"]) == (None, b"{}")
    assert [edit.device for edit in read_edits(log)] == ["other/phone"]
    # Reading the whole log again brings nothing back.
    (out / "_checkpoint" / "arrow.json").unlink()
    assert history(log, out, "--engine", "arrow", "--once").process.wait(200) == 0
    assert {row["device"] for row in rows_of(out)} == {"other/phone"}


def test_friendships_go_with_either_user(log: str) -> None:
    ensure_topics(log, [FRIENDSHIP_TOPIC])
    producer = Producer(producer_config(log, "test"))
    for key in ("ann\nbob", "bob\nann", "bob\ncarl"):
        producer.produce(FRIENDSHIP_TOPIC.name, b'{"since":0}', key.encode())
    assert producer.flush(60) == 0
    report = ErasureReport([], START_MS, ["ann"])
    erase_topics(log, report)
    assert report.tombstones == {"friendship": 2}
    values = newest_values(log, FRIENDSHIP_TOPIC.name)
    assert [key for key, value in values.items() if value is not None] == [b"bob\ncarl"]


def test_forwardings_go_with_their_user_and_not_with_a_device(log: str) -> None:
    ensure_topics(log, FORWARDING_TOPICS)
    producer = Producer(producer_config(log, "test"))
    for key in ("gus\n1", "hal\n1"):
        producer.produce(FORWARDING, b"sealed", key.encode())
        producer.produce(FORWARDING_PROGRESS, b"sealed", f"{key}\n0".encode())
    assert producer.flush(60) == 0
    report = ErasureReport(["hal/phone"], START_MS, ["gus"])
    erase_topics(log, report)
    assert (report.tombstones[FORWARDING], report.tombstones[FORWARDING_PROGRESS]) == (1, 1)
    values = newest_values(log, FORWARDING)
    assert (values[b"gus\n1"], values[b"hal\n1"]) == (None, b"sealed")
    assert owner_of_record(FORWARDING, b"gus\n1") in owners_of_user("gus")
    # The key of a user's other records goes with each of its devices.
    assert owner_of_record(FORWARDING, b"gus\n1") != "gus"


async def append_sealed(servers: str, devices: tuple[str, ...], count: int) -> None:
    loop = asyncio.get_running_loop()
    producer = sealed_if_configured(BatchProducer(servers, "test", loop), servers, loop)
    fixes = [make_fix(each, START_MS + n * 120_000) for n in range(count) for each in devices]
    appended = [producer.append(LOCATION, encode(fix), fix.device.encode()) for fix in fixes]
    await asyncio.gather(*appended)
    await producer.close()


@pytest.mark.long
def test_where_values_are_sealed_nothing_in_the_log_can_be_read_any_more(
    log: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key_file, out = tmp_path / "master.key", tmp_path / "history"
    ensure_master_key(key_file)
    monkeypatch.setenv(ENVIRONMENT, str(key_file))
    devices = ("demo/phone", "demo/bike", "other/phone")
    asyncio.run(append_sealed(log, devices, 200))
    sealed = newest_values(log, LOCATION)
    assert set(sealed) == {each.encode() for each in devices}
    assert all(is_sealed(value) for value in sealed.values())
    ring = KeyRing(log, load_master_key(key_file))
    mine = sealed[b"demo/phone"]
    assert mine is not None
    assert b'"device":"demo/phone"' in (ring.open_value(mine, b"demo/phone") or b"")
    assert history(log, out, "--engine", "arrow", "--once").process.wait(200) == 0
    assert len(rows_of(out)) == 600

    capsys.readouterr()
    words = ("--places", str(tmp_path / "places"), "--bootstrap-servers", log, "--json")
    erase(out, "--device", "demo/phone", "--patience", "60", *words)
    report = json.loads(capsys.readouterr().out)
    assert (report["rows"], report["keys"], report["keys_gone"]) == (200, 1, True)
    assert all(each["unreadable_since"] <= report["erased"] for each in report["kept"])
    assert ring.open_value(mine, b"demo/phone") is None
    bike = sealed[b"demo/bike"]
    assert bike is not None
    assert ring.open_value(bike, b"demo/bike")
    ring.close()

    # Read everything again without the list of erased devices: the values cannot be decrypted.
    (out / "_checkpoint" / "arrow.json").unlink()
    for name in ("_erased.json", *(path.name for path in out.glob("month=*"))):
        (out / name).rename(tmp_path / name)
    job = history(log, out, "--engine", "arrow", "--once")
    assert job.process.wait(200) == 0
    assert {row["device"] for row in rows_of(out)} == {"demo/bike", "other/phone"}
    assert len(rows_of(out)) == 400

    # A user's devices follow from the keys of their records, even if their encryption keys are
    # gone.
    erase(out, "--user", "demo", "--patience", "0", *words)
    report = json.loads(capsys.readouterr().out)
    assert report["devices"] == ["demo/bike", "demo/phone"]
    assert report["keys"] == 1


def test_sealed_values_are_read_with_the_master_key_alone(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file = tmp_path / "master.key"
    ensure_master_key(key_file)
    monkeypatch.setenv(ENVIRONMENT, str(key_file))
    asyncio.run(append_sealed(log, ("demo/phone",), 10))
    out = tmp_path / "history"
    monkeypatch.delenv(ENVIRONMENT)
    job = history(log, out, "--engine", "arrow", "--once")
    assert job.process.wait(200) == 1
    job.await_line("WAYLOG_MASTER_KEY has to name")
    monkeypatch.setenv(ENVIRONMENT, str(key_file))
    assert history(log, out, "--engine", "arrow", "--once").process.wait(200) == 0
    assert len(rows_of(out)) == 10


def test_a_history_that_was_away_honours_an_erasure_and_takes_in_what_is_new(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, nowhere = tmp_path / "history", tmp_path / "nowhere"
    devices = ("demo/phone", "other/phone")
    begin = int(time.time() * 1000) - 3_600_000
    append_fixes(log, [make_fix(each, begin + n) for n in range(100) for each in devices])
    assert history(log, out, "--engine", "arrow", "--once").process.wait(200) == 0
    append_fixes(log, [make_fix(each, begin + 100 + n) for n in range(100) for each in devices])

    # There is no history in this folder.
    words = ("--bootstrap-servers", log, "--places", str(tmp_path / "places"), "--json")
    erase(nowhere, "--user", "demo", *words)
    report = json.loads(capsys.readouterr().out)
    assert (report["devices"], report["history"], report["rows"]) == (["demo/phone"], False, 0)
    assert read_erasures(log).known().keys() == {"demo", "demo/phone"}
    assert not nowhere.exists()

    # A phone sends fixes that it stored before the erasure, and then new ones.
    now = report["erased"] + 1
    append_fixes(log, [make_fix("demo/phone", begin + 500), make_fix("demo/phone", now)])
    assert history(log, out, "--engine", "arrow", "--once").process.wait(200) == 0
    rows = rows_of(out)
    assert [row["time"] for row in rows if row["device"] == "demo/phone"] == [now]
    assert len(rows) == 201
    # So does one that is written anew: the log has the erasures.
    assert history(log, tmp_path / "anew", "--engine", "arrow", "--once").process.wait(200) == 0
    assert rows_of(tmp_path / "anew") == rows


def test_what_was_read_before_an_erasure_is_taken_out_when_it_gets_its_name(tmp_path: Path) -> None:
    table = some_fixes(40)
    storage = Storage(str(tmp_path))
    storage.open_folder()
    lock = storage.lock()
    files = HistoryFiles(storage)
    files.open()
    landed = []
    for rows in land(table.to_batches(), storage, None, None):
        landed += [StagedFile(**row) for row in rows.to_pylist()]
    erase(tmp_path, "--device", "u/d3")
    files.commit(landed)
    if lock is not None:
        lock.close()
    assert {row["device"] for row in rows_of(tmp_path)} == {
        row["device"] for row in table.to_pylist() if row["device"] != "u/d3"
    }


def test_an_erasure_that_cannot_begin_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = f"127.0.0.1:{reserved_ports(1)[0]}"
    words = ("--out", str(tmp_path / "history"), "--bootstrap-servers", servers, "--yes")
    assert main(["history", "erase", "--user", "ada", *words]) == 1
    said = capsys.readouterr().err
    assert f"no Kafka broker answers at {servers}" in said
    assert "nothing was erased" in said


@pytest.mark.parametrize(
    ("owners", "said"),
    [
        (["ada", "ada/phone"], "1 device and 1 user"),
        (["ada/phone", "ada/watch"], "2 devices"),
        (["ada", "bob"], "2 users"),
    ],
)
def test_users_are_not_counted_as_devices(owners: list[str], said: str) -> None:
    assert counted(owners) == said
