"""Receipts of a real log and a real history, with losses that are planted."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
)

from tests.apache_kafka import apache_kafka
from tests.odd_records import MALFORMED_VALUES, append_with_odd_header
from tests.secured_log import secured_log
from tests.waylog.audit.running import (
    DAY,
    DAY_MS,
    HOUR_MS,
    NOON_MS,
    AuditedLog,
    counts_of,
    encoded,
    make_fix,
    reader_of,
)
from waylog.audit import audit as audit_module
from waylog.audit.history_rows import HistoryRows
from waylog.audit.pushes import push_records
from waylog.cli import main
from waylog.config import DataDirectory
from waylog.history.erasures import append_erasures
from waylog.kafka.clients import client_config, ensure_topics
from waylog.kafka.topics import ERROR, LOCATION, PUSH, VALUE_KEY_TOPIC, Topic
from waylog.messages import Rejected, encode
from waylog.sealing.sealing import ENVIRONMENT, shared_key_ring
from waylog.sealing.value_encryption import ensure_master_key, load_master_key
from waylog.sealing.value_keys import KeyRing

pytestmark = pytest.mark.early


def test_a_fix_that_the_history_has_lost_is_found(log: AuditedLog) -> None:
    phone = [make_fix("ada/phone", number) for number in range(50)]
    tablet = [make_fix("ben/tablet", number) for number in range(30)]
    # A gateway that was killed may append a fix twice; the history has it once.
    log.append([*phone, *tablet, phone[7], phone[8]])
    log.write_history()
    log.append_addresses([phone[-1], tablet[-1]])
    log.commit("resolver", log.ends())

    status, receipt = log.device("ada/phone")
    assert (status, receipt["lacking"], receipt["unknown"]) == (0, 0, [])
    assert (receipt["acknowledged"], receipt["repeats"]) == (50, 2)
    assert counts_of(receipt, "history") == {"taken": 50}
    assert counts_of(receipt, "resolver") == {"taken": 50}
    assert receipt["resolved"]["fix_id"] == phone[-1].id
    assert receipt["first_received"] == phone[0].received
    assert reader_of(receipt, "history")["until"] == phone[-1].received

    log.lose(phone[20])
    log.lose(tablet[3])
    status, receipt = log.device("ada/phone")
    assert (status, receipt["lacking"]) == (1, 1)
    assert counts_of(receipt, "history") == {"taken": 49, "missing": 1}
    status, (*receipts, totals) = log.audit("day", DAY)
    assert status == 1
    assert [(each["device"], each["lacking"]) for each in receipts] == [
        ("ada/phone", 1), ("ben/tablet", 1)
    ]  # fmt: skip
    assert (totals["acknowledged"], totals["devices"], totals["lacking"]) == (80, 2, 2)
    assert totals["unknown"] == []
    assert log.audit("day", DAY, "--ignore", "history")[0] == 0
    # The same is said to people.
    status, text = log.printed("day", DAY)
    assert status == 1
    assert "history 1 missing" in text and "2 missing where they should be" in text
    status, text = log.printed("device", "ada/phone", "--day", DAY, "--timezone", "Asia/Tokyo")
    assert "50 fixes" in text and "21:00:00 to 21:00:49" in text

    # Where is this one?
    status, (found,) = log.audit("fix", phone[20].id)
    assert (status, found["device"], len(found["places"])) == (1, "ada/phone", 1)
    assert counts_of(found, "history") == {"missing": 1}
    status, (found,) = log.audit("fix", phone[7].id, "--device", "ada/phone")
    assert (status, len(found["places"])) == (0, 2)
    status, text = log.printed("fix", phone[-1].id)
    assert status == 0 and "has it" in text and "resolved" in text
    assert main(["audit", "fix", "0" * 24, "--bootstrap-servers", log.servers]) == 1


def test_a_fix_that_came_again_on_another_day_is_not_lost(log: AuditedLog) -> None:
    fixes = [make_fix("ada/phone", number, NOON_MS - DAY_MS) for number in range(3)]
    log.append(fixes)
    # The history has these under their first offsets, before the day that is asked about.
    log.append_values(LOCATION, ((b"ada/phone", encode(fix), NOON_MS) for fix in fixes[:2]))
    log.append([make_fix("ada/phone", 9)])
    log.write_history()
    status, receipt = log.device("ada/phone")
    assert (status, receipt["acknowledged"], receipt["repeats"]) == (0, 1, 2)
    assert counts_of(receipt, "history") == {"taken": 1}
    log.lose(fixes[1])
    status, receipt = log.device("ada/phone")
    assert (status, receipt["acknowledged"], receipt["repeats"]) == (1, 2, 1)
    assert counts_of(receipt, "history") == {"taken": 1, "missing": 1}


@pytest.mark.spark
@pytest.mark.long
def test_a_history_that_spark_writes_is_compared_too(log: AuditedLog) -> None:
    fixes = [make_fix("ada/phone", number) for number in range(20)]
    log.append(fixes)
    log.write_history_with_spark()
    status, receipt = log.device("ada/phone")
    assert (status, receipt["unknown"]) == (0, [])  # its checkpoint was understood
    assert counts_of(receipt, "history") == {"taken": 20}
    log.append([make_fix("ada/phone", 20)])
    log.lose(fixes[3])
    status, receipt = log.device("ada/phone", "--late", "9d")
    assert (status, counts_of(receipt, "history")) == (
        1, {"taken": 19, "missing": 1, "pending": 1}
    )  # fmt: skip


@pytest.mark.kafka
def test_the_same_is_told_of_apache_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYLOG_DATA", str(tmp_path / "data"))
    with apache_kafka(more={"offsets_topic_replication_factor": "1"}) as servers:
        log = AuditedLog(tmp_path, servers)
        fixes = [make_fix(f"user{number % 3}/phone", number) for number in range(60)]
        log.append([*fixes, fixes[5]])
        log.write_history()
        log.commit("resolver", log.ends())
        log.append_addresses(fixes[-3:])
        status, (*receipts, totals) = log.audit("day", DAY)
        assert (status, totals["acknowledged"], totals["repeats"]) == (0, 60, 1)
        assert totals["unknown"] == []
        assert [each["acknowledged"] for each in receipts] == [20, 20, 20]
        log.lose(fixes[8])
        log.commit("connect-files", dict.fromkeys(log.ends(), 0))
        status, receipt = log.device("user2/phone")
        assert (status, counts_of(receipt, "history")) == (1, {"taken": 19, "missing": 1})
        assert counts_of(receipt, "connect-files") == {"overdue": 20}
        assert log.audit("fix", fixes[8].id)[0] == 1


def test_no_coordinates_are_told(log: AuditedLog) -> None:
    log.append([make_fix("ada/phone", 1)])
    log.write_history()
    for words in (("device", "ada/phone", "--day", DAY), ("day", DAY)):
        for more in ((), ("--json",)):
            text = log.printed(*words, *more)[1]
            assert "47.1" not in text and "lat" not in text.replace("late", "")


def test_a_reader_that_lags_is_told_with_its_time(log: AuditedLog) -> None:
    fixes = [make_fix("ada/phone", number) for number in range(20)]
    log.append(fixes)
    (partition,) = [each for each, end in log.ends().items() if end]
    log.commit("connect-files", {partition: 12})
    log.commit("somebody", {partition: 3})
    log.commit("resolver", {partition: 20})
    log.append_addresses([fixes[-1]])

    status, receipt = log.device("ada/phone")
    files = reader_of(receipt, "connect-files")
    assert (status, receipt["lacking"]) == (1, 8)
    assert (files["kind"], files["taken"], files["overdue"]) == ("connector", 12, 8)
    assert (files["until"], files["since"]) == (fixes[11].received, fixes[12].received)
    # A group that nobody vouches for is told, and lacks nothing that counts.
    assert counts_of(receipt, "somebody") == {"taken": 3, "overdue": 17}
    assert log.device("ada/phone", "--ignore", "connect-files")[0] == 0
    assert log.device("ada/phone", "--late", "3d", "--expect", "somebody")[0] == 0
    status, receipt = log.device("ada/phone", "--late", "3d", "--expect", "connect-never")
    assert (status, counts_of(receipt, "connect-never")) == (0, {"pending": 20})
    status, receipt = log.device("ada/phone", "--expect", "connect-never")
    assert (status, counts_of(receipt, "connect-never")) == (1, {"overdue": 20})
    # What nobody has sent lacks nothing.
    status, receipt = log.device("eve/phone", "--expect", "connect-never")
    assert (status, receipt["acknowledged"]) == (0, 0)


def test_a_day_is_the_same_for_every_reader(log: AuditedLog) -> None:
    begin, end = NOON_MS - DAY_MS // 2, NOON_MS + DAY_MS // 2
    for received in (begin - 1, begin, end - 1, end):
        log.append([make_fix("ada/phone", 0, received)])
    log.write_history()
    status, receipt = log.device("ada/phone")
    assert (status, receipt["acknowledged"]) == (0, 2)
    assert (receipt["first_received"], receipt["last_received"]) == (begin, end - 1)
    assert receipt["made_earlier"] == 1
    assert counts_of(receipt, "history") == {"taken": 2}
    status, receipt = log.device("ada/phone", "--timezone", "Asia/Tokyo")
    assert receipt["acknowledged"] == 2
    assert receipt["from_ms"] == begin - 9 * HOUR_MS
    assert (receipt["first_received"], receipt["last_received"]) == (begin - 1, begin)


def test_a_device_without_an_address_is_missed_once_the_resolver_has_passed(
    log: AuditedLog,
) -> None:
    early = make_fix("ada/phone", 0, NOON_MS - DAY_MS)
    log.append([early])
    log.append_addresses([early])
    log.append([make_fix("ada/phone", 1), make_fix("ben/phone", 1)])
    assert log.device("ben/phone", "--late", "9d")[0] == 0
    log.commit("resolver", log.ends())
    # The address of before still holds for a device that stands still, or whose fix came late.
    status, receipt = log.device("ada/phone")
    assert (status, receipt["resolved"]["fix_id"]) == (0, early.id)
    status, receipt = log.device("ben/phone")
    assert (status, receipt["address_missing"], receipt["lacking"]) == (1, True, 1)
    status, (*_, totals) = log.audit("day", DAY)
    assert (status, totals["addresses_missing"]) == (1, 1)


def test_refusals_are_told_with_their_reasons(log: AuditedLog) -> None:
    fixes = [make_fix("ada/phone", number) for number in range(4)]
    log.append(fixes)
    (partition,) = [each for each, end in log.ends().items() if end]
    log.commit("connect-web", {partition: 4})
    place = {"topic": LOCATION, "partition": str(partition), "offset": "1"}
    by_resolver = Rejected(
        reason="not on earth", source="resolver", time=0, raw=b"", device="ada/phone", headers=place
    )
    by_gateway = Rejected(
        reason="no coordinates", source="owntracks", time=0, raw=b"{}", device="ada/phone",
        user="ada",
    )  # fmt: skip
    of_other = Rejected(reason="bad", source="osmand", time=0, raw=b"", device="ben/phone")
    log.append_values(
        ERROR,
        [
            (b"ada/phone", encode(by_resolver), NOON_MS + DAY_MS),  # it was late
            (b"ada/phone", encode(by_gateway), NOON_MS + 5),
            (b"ada/phone", encode(by_gateway), NOON_MS + DAY_MS),  # another day's
            (b"ben/phone", encode(of_other), NOON_MS + 5),
            *((None, value, NOON_MS + 6) for value in MALFORMED_VALUES),
        ],
    )
    context = {
        "topic": LOCATION, "partition": str(partition), "offset": "2", "connector.name": "web",
        "exception.message": "status 410",
    }  # fmt: skip
    headers = [(f"__connect.errors.{name}", text.encode()) for name, text in context.items()]
    letter = (b"ada/phone", encode(fixes[2]), fixes[2].received)
    ensure_topics(log.servers, [Topic("letters", 1)])
    log.append_values("letters", [letter], headers=headers)
    log.append_values("letters", [letter])
    # The connector, and the resolver, have refused records of another topic too.
    others = context | {"topic": "event", "offset": "3"}
    headers = [(f"__connect.errors.{name}", text.encode()) for name, text in others.items()]
    log.append_values("letters", [letter], headers=headers)
    of_event = msgspec.structs.replace(
        by_resolver, headers=place | {"topic": "event", "offset": "0"}
    )
    log.append_values(ERROR, [(b"ada/phone", encode(of_event), NOON_MS + 5)])

    status, receipt = log.device("ada/phone")
    assert status == 0
    assert receipt["refused"] == [{"reason": "owntracks: no coordinates", "count": 1}]
    assert counts_of(receipt, "resolver") == {"refused": 1, "unknown": 3}
    assert reader_of(receipt, "resolver")["reasons"] == [{"reason": "not on earth", "count": 1}]
    status, receipt = log.device("ada/phone", "--dead-letters", "letters")
    assert (status, receipt["lacking"]) == (1, 1)
    assert counts_of(receipt, "connect-web") == {"taken": 3, "refused": 1}
    assert reader_of(receipt, "connect-web")["reasons"] == [{"reason": "status 410", "count": 1}]
    letters, resolver = receipt["unknown"]
    assert letters.startswith("1 dead letters do not tell")
    assert resolver.startswith("resolver has refused records, and has no offsets")
    status, (*receipts, totals) = log.audit("day", DAY)
    assert [each["device"] for each in receipts] == ["ada/phone", "ben/phone"]
    assert totals["refused"] == 2
    status, receipt = log.device("ada/phone", "--dead-letters", "no-letters")
    assert receipt["unknown"] == ["there is no topic no-letters of dead letters", resolver]


def test_what_a_topology_refuses_is_told_with_its_group(log: AuditedLog) -> None:
    log.append([make_fix("ada/phone", number) for number in range(3)])
    (partition,) = [each for each, end in log.ends().items() if end]
    log.commit("streams-speed", {partition: 3})
    place = {"topic": LOCATION, "partition": str(partition), "offset": "1"}
    refused = [
        Rejected(reason="no fix", source=source, time=0, raw=b"", headers=place)
        for source in ("speed", "trips")
    ]
    log.append_values(ERROR, [(None, encode(each), NOON_MS + 5) for each in refused])
    status, receipt = log.device("ada/phone")
    assert status == 0
    assert counts_of(receipt, "streams-speed") == {"taken": 2, "refused": 1}
    assert counts_of(receipt, "streams-trips") == {"refused": 1, "unknown": 2}
    assert {each["name"] for each in receipt["readers"]} == {"streams-speed", "streams-trips"}
    (told,) = receipt["unknown"]
    assert told.startswith("streams-trips has refused records, and has no offsets")


@pytest.mark.parametrize("option", ["--resolver-group", "--expect"])
def test_a_group_that_does_not_exist_is_told_and_lacks_everything(
    log: AuditedLog, option: str
) -> None:
    log.append([make_fix("ada/phone", number) for number in range(3)])
    status, receipt = log.device("ada/phone", option, "nosuch")
    assert (status, receipt["lacking"]) == (1, 3)
    assert counts_of(receipt, "nosuch") == {"overdue": 3}
    (told,) = receipt["unknown"]
    assert told.startswith("there is no consumer group nosuch with offsets in topic location")
    status, receipt = log.device("ada/phone", option, "nosuch", "--ignore", "nosuch")
    assert (status, receipt["unknown"]) == (0, [])


def test_gaps_in_the_count_of_an_app_are_shown(log: AuditedLog) -> None:
    numbers = [1, 2, 3, 7, 8, 9, 20, 1, 3]
    log.append(
        make_fix("ada/phone", index, attributes={"sequence": number})
        for index, number in enumerate(numbers)
    )
    log.append([make_fix("ben/phone", 1)])
    sequence = log.device("ada/phone")[1]["sequence"]
    assert sequence["gaps"] == [
        {"first": 4, "last": 6}, {"first": 10, "last": 19}, {"first": 2, "last": 2}
    ]  # fmt: skip
    assert (sequence["missing"], sequence["restarts"]) == (14, 1)
    assert log.device("ben/phone")[1]["sequence"] is None
    printed = log.printed("device", "ada/phone", "--day", DAY)[1]
    assert "14 are not in the log (4-6, 10-19, 2); began again once" in printed
    assert "does not count" in log.printed("device", "ben/phone", "--day", DAY)[1]


def test_nothing_from_before_an_erasure_is_told(log: AuditedLog) -> None:
    log.append([make_fix("ada/phone", 1), make_fix("ben/phone", 1)])
    log.append([make_fix("ada/phone", 100)])
    rejected = Rejected(reason="bad", source="osmand", time=0, raw=b"", device="ada/phone")
    log.append_values(ERROR, [(b"ada/phone", encode(rejected), NOON_MS + 5)])
    append_erasures(log.servers, ["ada/phone"], NOON_MS + 50_000)
    receipt = log.device("ada/phone")[1]
    assert (receipt["acknowledged"], receipt["refused"]) == (1, [])
    assert receipt["first_received"] == NOON_MS + 100_000
    append_erasures(log.servers, ["ada/phone"], NOON_MS + 100_000)
    _, (*receipts, totals) = log.audit("day", DAY)
    assert [each["device"] for each in receipts] == ["ben/phone"]
    assert totals["acknowledged"] == 1
    assert main(["audit", "fix", make_fix("ada/phone", 1).id, "--bootstrap-servers",
                 log.servers]) == 1  # fmt: skip


def test_what_retention_has_deleted_is_unknown_and_not_lost(log: AuditedLog) -> None:
    fixes = [make_fix("ada/phone", number) for number in range(10)]
    log.append(fixes)
    log.append([make_fix("ada/phone", 0, NOON_MS + DAY_MS)])
    (partition,) = [each for each, end in log.ends().items() if end]
    log.commit("connect-files", {partition: 4})
    log.write_history()
    admin = AdminClient(client_config(log.servers, "test"))
    place = TopicPartition(LOCATION, partition, 6)
    admin.delete_records([place])[place].result(30)

    status, receipt = log.device("ada/phone")
    assert receipt["acknowledged"] == 10
    assert counts_of(receipt, "history") == {"taken": 10}
    # Two were deleted before the connector came; four are there, and overdue.
    assert counts_of(receipt, "connect-files") == {"taken": 4, "missing": 2, "overdue": 4}
    assert status == 1
    (told,) = receipt["unknown"]
    assert "the log has deleted records" in told and "what it lacks is not known" in told
    assert log.audit("day", DAY)[1][0]["acknowledged"] == 10
    # The fix that is only in the history.
    status, (found,) = log.audit("fix", fixes[1].id)
    assert counts_of(found, "history") == {"taken": 1}
    # Without a history nothing of it is known.
    log.history.rename(log.history.with_name("elsewhere"))
    receipt = log.device("ada/phone")[1]
    assert receipt["acknowledged"] == 4
    assert "cannot be counted without a history" in receipt["unknown"][0]


def test_a_packed_history_has_the_same_offsets(log: AuditedLog) -> None:
    fixes = [make_fix(f"user{number % 7}/phone", number) for number in range(200)]
    log.append(fixes)
    log.write_history()
    assert main(["history", "compact", "--out", str(log.history), "--all"]) == 0
    log.append([make_fix("user1/phone", 500)])
    log.write_history()
    status, (*receipts, totals) = log.audit("day", DAY)
    assert (status, totals["lacking"], totals["acknowledged"]) == (0, 0, 201)
    assert all(counts_of(each, "history") == {"taken": each["acknowledged"]} for each in receipts)


def test_what_is_not_in_the_history_yet_waits(log: AuditedLog) -> None:
    log.append([make_fix("ada/phone", 1)])
    log.write_history()
    log.append([make_fix("ada/phone", 2)])
    status, receipt = log.device("ada/phone", "--late", "9d")
    assert (status, counts_of(receipt, "history")) == (0, {"taken": 1, "pending": 1})
    assert log.device("ada/phone")[0] == 1
    # A job whose checkpoint is elsewhere: only old fixes count as lost.
    log.write_history()
    (log.history / "_checkpoint" / "arrow.json").unlink()
    log.lose(make_fix("ada/phone", 1))
    status, receipt = log.device("ada/phone", "--late", "9d")
    assert (status, counts_of(receipt, "history")) == (0, {"taken": 1, "pending": 1})
    status, receipt = log.device("ada/phone")
    assert (status, counts_of(receipt, "history")) == (1, {"taken": 1, "missing": 1})
    assert "no checkpoint" in receipt["unknown"][0]


def test_a_history_that_is_not_there_is_told_from_one_that_is_not_written_yet(
    log: AuditedLog, tmp_path: Path
) -> None:
    log.append([make_fix("ada/phone", 1)])
    words = ("device", "ada/phone", "--day", DAY, "--late", "9d")
    status, text = log.printed(*words)
    assert status == 0 and "no history job writes for this data folder" in text
    # A job that `waylog up` starts has written nothing yet, not even its folder.
    data = DataDirectory(tmp_path / "data")
    data.root.mkdir()
    data.history_url.write_text(f"{log.history}\n")
    status, (receipt,) = log.audit(*words)
    assert (status, counts_of(receipt, "history")) == (0, {"pending": 1})
    assert receipt["unknown"] == [
        f"the history in {log.history} has no file yet: its job has just begun, or does not run"
    ]
    # It is written where the data folder says.
    log.write_history()
    log.history.rename(moved := tmp_path / "elsewhere")
    data.history_url.write_text(f"{moved}\n")
    status, (receipt,) = log.audit(*words)
    assert (status, counts_of(receipt, "history")) == (0, {"taken": 1})
    assert receipt["unknown"] == []
    # It cannot be read: that is not `nothing is missing`.
    (moved / "_manifest.json").write_text("{")
    status, (receipt,) = log.audit(*words)
    assert (status, counts_of(receipt, "history")) == (1, {"unknown": 1})
    assert f"the history in {moved} cannot be read" in receipt["unknown"][0]
    assert "_manifest.json" in receipt["unknown"][0]


def test_what_was_pushed_is_told_with_its_time(log: AuditedLog) -> None:
    log.append([make_fix("ada/phone", 1), make_fix("ada/phone", 2)])
    told = [
        (since, since + 15_000, [(channel, {"ada/phone": [count, since + 14_000]})])
        for since, channel, count in (
            *((NOON_MS, 0, 2), (NOON_MS + HOUR_MS, 0, 3), (NOON_MS + HOUR_MS, 2, 1)),
            *((NOON_MS - DAY_MS, 0, 50), (NOON_MS + DAY_MS, 0, 50)),
        )
    ]
    for since, until, pushes in told:
        records = push_records(since, until, pushes)
        log.append_values(PUSH, ((key, value, until) for key, value in records))
    log.append_values(PUSH, [(b"3", b"junk", NOON_MS), (None, None, NOON_MS)])
    _, receipt = log.device("ada/phone")
    assert receipt["pushes"] == [
        {"channel": "mqtt", "count": 5, "last": NOON_MS + HOUR_MS + 14_000},
        {"channel": "http", "count": 1, "last": NOON_MS + HOUR_MS + 14_000},
    ]
    _, text = log.printed("device", "ada/phone", "--day", DAY)
    assert "5 by MQTT up to 13:00:14, 1 by answers over HTTP up to 13:00:14; 2 fixes came" in text
    assert log.device("ben/phone")[1]["pushes"] == []


def test_the_password_of_a_history_is_not_told() -> None:
    rows = HistoryRows("s3://key:secret@bucket/history?endpoint_override=x")
    assert rows.place == "s3://bucket/history"


@pytest.mark.parametrize("shape", ["python", "jvm"])
def test_the_checkpoint_of_spark_is_understood(log: AuditedLog, shape: str) -> None:
    log.append([make_fix("ada/phone", 1)])
    log.write_history()
    log.append([make_fix("ada/phone", 2)])
    folder = log.history / "_checkpoint" / shape
    ends = {str(partition): end for partition, end in log.ends().items()}
    planned = {LOCATION: ends} if shape == "jvm" else ends
    for name, number, content in (
        ("offsets", 10, planned),
        ("commits", 10, {}),
        ("offsets", 9, {}),
        ("offsets", 11, dict.fromkeys(ends, 1 << 40)),  # planned, and not done
    ):
        path = folder / name / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"v1\n{}\n" + encoded(content))
    receipt = log.device("ada/phone")[1]
    assert counts_of(receipt, "history") == {"taken": 1, "missing": 1}


def test_records_of_anybody_stop_nothing(log: AuditedLog) -> None:
    log.append([make_fix("ada/phone", 1)])
    big = make_fix("ada/phone", 2)
    big.time = 1 << 70
    odd = [*MALFORMED_VALUES, b"", None, b"[]", b"1", b'"x"', encoded({"id": "1"}), encoded(big)]
    log.append_values(LOCATION, [(b"ada/phone", value, NOON_MS + 5) for value in odd])
    log.append_values(LOCATION, [(None, b"{}", NOON_MS + 5), (b"\xff/\xfe", b"{}", NOON_MS + 5)])
    append_with_odd_header(log.servers, ERROR, b"{}", b"ada/phone")
    log.append_values("address", [(b"ada/phone", value, NOON_MS + 5) for value in odd])
    log.append([make_fix("ada/phone", 3)])
    log.write_history()
    status, receipt = log.device("ada/phone")
    assert (status, receipt["acknowledged"], receipt["unreadable"]) == (0, 2, len(odd))
    status, (*_, totals) = log.audit("day", DAY)
    assert (status, totals["acknowledged"]) == (0, 2)
    assert log.printed("day", DAY, "--all")[0] == 0


def test_offsets_beyond_the_end_are_those_of_another_log(log: AuditedLog) -> None:
    log.append([make_fix("ada/phone", 1)])
    log.commit("connect-files", dict.fromkeys(log.ends(), 500))
    status, receipt = log.device("ada/phone")
    assert (status, counts_of(receipt, "connect-files")) == (0, {"unknown": 1})
    assert "it has read another log" in receipt["unknown"][0]


def test_partitions_that_were_added_are_read_too(log: AuditedLog) -> None:
    devices = [f"user{number}/phone" for number in range(40)]
    log.append(make_fix(device, 1) for device in devices)
    admin = AdminClient(client_config(log.servers, "test"))
    admin.create_partitions([NewPartitions(LOCATION, 7)])[LOCATION].result(30)
    log.append(make_fix(device, 2) for device in devices)
    log.write_history()
    assert len(log.ends()) == 7
    for device in devices[:5]:
        receipt = log.device(device)[1]
        assert (receipt["acknowledged"], receipt["unknown"]) == (2, [])
    status, (*_, totals) = log.audit("day", DAY)
    assert (status, totals["acknowledged"], totals["devices"]) == (0, 80, 40)


def test_a_day_is_read_in_pieces(log: AuditedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    fixes = [make_fix(f"user{number % 9}/phone", number) for number in range(100)]
    log.append([*fixes, fixes[3]])
    log.write_history()
    log.lose(fixes[50])
    whole = log.audit("day", DAY)
    monkeypatch.setattr(audit_module, "PIECE_OFFSETS", 7)
    assert log.audit("day", DAY) == whole
    assert whole[1][-1]["lacking"] == 1


def test_sealed_values_are_opened_with_the_master_key(
    log: AuditedLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    key_file = tmp_path / "master.key"
    ensure_master_key(key_file)
    ensure_topics(log.servers, [VALUE_KEY_TOPIC])
    ring = KeyRing(log.servers, load_master_key(key_file))
    fixes = [make_fix("ada/phone", number) for number in range(5)]
    rejected = Rejected(reason="bad", source="osmand", time=0, raw=b"", device="ada/phone")
    for topic, value in [*((LOCATION, encode(fix)) for fix in fixes), (ERROR, encode(rejected))]:
        sealed = ring.seal_value(topic, value, b"ada/phone")
        log.append_values(topic, [(b"ada/phone", sealed, NOON_MS)])
    ring.close()
    assert log.printed("device", "ada/phone", "--day", DAY)[0] == 2
    assert "has to name the file of the master key" in capfd.readouterr().err
    monkeypatch.setenv(ENVIRONMENT, str(key_file))
    shared_key_ring.cache_clear()  # this process has looked for a key before
    log.write_history()
    status, receipt = log.device("ada/phone")
    assert (status, receipt["acknowledged"], receipt["unreadable"]) == (0, 5, 0)
    assert receipt["refused"] == [{"reason": "osmand: bad", "count": 1}]
    assert counts_of(receipt, "history") == {"taken": 5}


def test_without_the_right_to_read_refusals_they_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYLOG_DATA", str(tmp_path / "data"))
    with secured_log(tmp_path) as secured:
        AuditedLog(tmp_path, secured.plaintext).append([make_fix("ada/phone", 1)])
        words = ["audit", "device", "ada/phone", "--day", DAY, "--json"]
        words += ["--bootstrap-servers", secured.login]
        words += ["--command-config", str(secured.properties())]
        assert main(words) == 1
        assert "topic location is forbidden" in capfd.readouterr().err
        for topic in ("location", "address", "erasure"):
            secured.allow("topic", topic, "read", "describe")
        assert main(words) == 0
        receipt = json.loads(capfd.readouterr().out)
    assert (receipt["acknowledged"], receipt["refused"]) == (1, [])
    assert receipt["forwardings"] is None
    assert "topic forwarding is forbidden" in receipt["unknown"][0]
    assert "topic error is forbidden" in receipt["unknown"][1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("device", "phone"), "USER/DEVICE"),
        (("device", "a/b/c"), "USER/DEVICE"),
        (("device", "a/b", "--day", "soon"), "is not a day"),
        (("day", "--timezone", "Mars/Olympus"), "is not a time zone"),
        (("day", "--late", "long"), "a time as 90s"),
        (("day", "--history", "/does/not/exist"), "there is no such folder"),
        (("fix", "mine-1"), "does not tell a time"),
    ],
)
def test_a_mistake_is_one_line(
    words: tuple[str, ...], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["audit", *words, "--bootstrap-servers", "127.0.0.1:1"])
    except SystemExit as ended:
        status = int(str(ended.code))
    printed = capfd.readouterr().err
    assert status == 2 and reason in printed and printed.count("\n") == 1


def test_a_log_that_does_not_answer_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYLOG_DATA", str(tmp_path))
    assert main(["audit", "day", "--bootstrap-servers", "127.0.0.1:1"]) == 1
    assert "no Kafka broker answers at 127.0.0.1:1" in capfd.readouterr().err


def test_a_name_that_the_gateway_would_change_is_told(
    log: AuditedLog, capfd: pytest.CaptureFixture[str]
) -> None:
    log.append([make_fix("ada/my_phone", 1)])
    log.printed("device", "ada/my phone", "--day", DAY)
    assert "the gateway stores 'ada/my phone' as 'ada/my_phone'" in capfd.readouterr().err
    log.printed("device", "ada/my_phone", "--day", DAY)
    assert "stores" not in capfd.readouterr().err


def test_names_and_texts_of_others_cannot_move_a_cursor(log: AuditedLog) -> None:
    device = "ada/ph\u202eo\u200bne\x1b[2J"
    fixes = [make_fix(device, number) for number in range(3)]
    log.append(fixes)
    reason = "bad \x1b]0;title\x07"
    rejected = Rejected(reason=reason, source="osmand", time=0, raw=b"", device=device)
    log.append_values(ERROR, [(device.encode(), encode(rejected), NOON_MS)])
    log.write_history()
    for words in (
        ("device", device, "--day", DAY), ("day", DAY, "--all"), ("fix", fixes[0].id)
    ):  # fmt: skip
        text = log.printed(*words)[1]
        assert r"ada/ph\u202eo\u200bne\x1b[2J" in text
        assert all(each.isprintable() or each == "\n" for each in text)
    assert r"bad \x1b]0;title\x07" in log.printed("device", device, "--day", DAY)[1]
