"""Compaction: the newest record of every key stays, offsets stay, a crash does no harm."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.environment import File, SystemDisk
from broker_core.errors import CorruptMessage, InvalidRecord, KafkaStorageError
from broker_core.log import Log, LogConfig
from broker_core.log.compaction import Compaction
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.crc32c import crc32c
from broker_core.protocol.record_reader import iterate_records
from broker_core.protocol.stored_batches import scan_batches
from tests.broker_core.log.support import HOUR_MS, NOW, Workbench

HORIZON_BIT = 0x40


def compacted_bench(path: Path, **config: object) -> Workbench:
    settings_: dict[str, object] = {
        "segment_bytes": 500,
        "index_interval_bytes": 100,
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": 0.0,
        "delete_retention_ms": HOUR_MS,
    }
    return Workbench(path, **(settings_ | config))


def put(bench: Workbench, *pairs: tuple[str, str | None], **batch: int) -> None:
    bench.append_records(
        [
            (NOW, key.encode(), None if value is None else value.encode(), [])
            for key, value in pairs
        ],
        **batch,
    )


def compact(bench: Workbench, now_ms: int = NOW) -> None:
    """Compact all records: close the active segment and make it durable first."""
    bench.log.roll()
    bench.log.flush()
    bench.log.compact(now_ms)


def keys(bench: Workbench) -> list[tuple[int, str, str | None]]:
    return [
        (offset, (key or b"").decode(), None if value is None else value.decode())
        for offset, _, key, value in bench.records()
    ]


def test_the_newest_record_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path)
    put(bench, ("a", "1"), ("b", "1"), ("a", "2"))
    put(bench, ("c", "1"))
    put(bench, ("a", "3"), ("d", "1"))
    compact(bench)
    assert keys(bench) == [(1, "b", "1"), (3, "c", "1"), (4, "a", "3"), (5, "d", "1")]
    assert bench.log.log_end_offset == 6
    put(bench, ("b", "2"))
    assert keys(bench)[-1] == (6, "b", "2")


def test_the_active_segment_is_left_alone(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path)
    put(bench, ("a", "1"))
    put(bench, ("a", "2"))
    bench.log.flush()
    assert bench.log.compact(NOW) is None
    assert len(keys(bench)) == 2


def test_what_is_not_durable_or_not_committed_is_left_alone(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path)
    bench.log.high_watermark_follows_end = False
    put(bench, ("a", "1"))
    put(bench, ("a", "2"))
    bench.log.roll()
    bench.log.high_watermark = 2
    assert bench.log.compact(NOW) is None
    bench.log.flush()
    bench.log.high_watermark = 1
    assert bench.log.compact(NOW) is None
    bench.log.high_watermark = 2
    assert bench.log.compact(NOW) is not None
    assert keys(bench) == [(1, "a", "2")]


def test_a_tombstone_stays_until_its_time_is_over(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path)
    put(bench, ("a", "1"), ("b", "1"))
    put(bench, ("a", None))
    compact(bench)
    assert keys(bench) == [(1, "b", "1"), (2, "a", None)]
    # A compaction runs only if there is something new.
    for step, expected in ((HOUR_MS - 1, True), (HOUR_MS, False)):
        put(bench, ("c", "x"))
        compact(bench, NOW + step)
        assert ((2, "a", None) in keys(bench)) is expected
    assert keys(bench)[0] == (1, "b", "1")


def test_the_delete_horizon_leaves_timestamps_as_they_were(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path)
    bench.append_records([(NOW - 7, b"a", None, []), (NOW - 9, b"b", b"1", [])], compression=3)
    put(bench, ("z", "1"))
    compact(bench)
    assert [record[:3] for record in bench.records()[:2]] == [
        (0, NOW - 7, b"a"),
        (1, NOW - 9, b"b"),
    ]
    header = scan_batches(bench.log.read(0, 1))[0][0]
    assert header.attributes == 3 | HORIZON_BIT
    assert header.delete_horizon_ms == header.base_timestamp == NOW + HOUR_MS
    assert header.max_timestamp == NOW - 7


def test_batches_keep_what_their_producer_gave_them(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path)
    put(bench, ("a", "1"), ("b", "1"), ("c", "1"), producer_id=5, producer_epoch=2, base_sequence=0)
    put(bench, ("a", "2"), ("c", "2"))
    compact(bench)
    header = scan_batches(bench.log.read(0, 1))[0][0]
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 1)
    assert (header.producer_id, header.producer_epoch) == (5, 2)
    assert (header.base_sequence, header.last_sequence) == (0, 2)
    bench.open()
    retry = bench.append(b"1", b"1", b"1", producer_id=5, producer_epoch=2, base_sequence=0)
    assert (retry.base_offset, retry.duplicate) == (0, True)


def test_log_append_times_survive(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path, message_timestamp_type="LogAppendTime")
    put(bench, ("a", "1"), ("b", "1"))
    bench.clock.now += 5
    put(bench, ("a", "2"))
    compact(bench)
    assert [record[1] for record in bench.records()] == [NOW, NOW + 5]


def test_small_segments_become_one(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path)
    for i in range(30):
        put(bench, ("a", f"{i}" + "x" * 150), (f"key-{i}", "1"))
    before = len(bench.log.segments)
    compact(bench)
    assert before > 10
    # Segments are joined by their size before compaction: small ones only at the next time.
    put(bench, ("a", "last"))
    compact(bench)
    put(bench, ("b", "last"))
    compact(bench)
    after = len(bench.log.segments)
    assert after < before / 2
    assert bench.files(".log") == [segment.path.name for segment in bench.log.segments]
    assert len(bench.files(".index")) == after - 1
    assert len(keys(bench)) == 32
    bench.log.close()
    bench.open()
    assert len(keys(bench)) == 32


def test_nothing_is_done_below_the_dirty_ratio(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path, min_cleanable_dirty_ratio=0.5)
    for i in range(10):
        put(bench, (f"key-{i}", "x" * 50))
    compact(bench)
    put(bench, ("key-0", "y"))
    bench.log.roll()
    bench.log.flush()
    assert bench.log.compact(NOW) is None
    bench.log.update_config(LogConfig(cleanup_policy="compact", max_compaction_lag_ms=HOUR_MS))
    assert bench.log.compact(NOW + HOUR_MS) is None
    assert bench.log.compact(NOW + HOUR_MS + 1) is not None
    assert len(keys(bench)) == 10


def test_young_records_are_left_alone(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path, min_compaction_lag_ms=HOUR_MS)
    put(bench, ("a", "1"))
    put(bench, ("a", "2"))
    compact(bench, NOW + HOUR_MS - 1)
    assert len(keys(bench)) == 2
    compact(bench, NOW + HOUR_MS)
    assert len(keys(bench)) == 1


def test_a_batch_that_cannot_be_opened_stays(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path)
    put(bench, ("a", "1"))
    raw = bytearray(bench.log.read(0, 1))
    raw[22] = 1  # marked as gzip, but it is not
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    with pytest.raises(CorruptMessage):
        bench.log.append(bytearray(raw), leader_epoch=0, now_ms=NOW)
    # A batch from before the topic was compacted.
    bench.log.update_config(replace(bench.config, cleanup_policy="delete"))
    bench.log.append(raw, leader_epoch=0, now_ms=NOW)
    bench.log.update_config(bench.config)
    put(bench, ("a", "2"))
    compact(bench)
    headers = scan_batches(bench.log.read(0, 10_000))[0]
    assert [header.base_offset for header in headers] == [1, 2]


def test_a_batch_that_cannot_be_written_again_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = compacted_bench(tmp_path)
    put(bench, ("a", "1"), ("b", "1"))
    # As a broker that did not refuse it may have it in its log: the times of x and y are so far
    # apart that neither can be told by its distance from the other.
    rows = [(time, key, b"old", ()) for time, key in ((0, b"a"), (2**63 - 1, b"x"), (0, b"y"))]
    batch = build_batch(rows, base_offset=2)
    batch[27:43] = 2 * NOW.to_bytes(8, "big")  # the base timestamp and the newest one
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    bench.log.append_as_follower(batch, NOW)
    put(bench, ("a", "2"), ("b", "2"), ("b", "3"))
    compact(bench)
    assert keys(bench) == [
        (2, "a", "old"),
        (3, "x", "old"),
        (4, "y", "old"),
        (5, "a", "2"),
        (7, "b", "3"),
    ]
    assert "the batch at offset 2 cannot be written again" in caplog.text


def test_tombstones_may_be_kept_for_ever(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path, delete_retention_ms=2**63 - 1)
    put(bench, ("a", "1"), ("b", "1"))
    put(bench, ("a", None))
    compact(bench)
    put(bench, ("c", "1"))
    compact(bench, NOW + 1000 * HOUR_MS)
    assert keys(bench) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]


# --- room on the disk ---


def leftovers(bench: Workbench) -> list[str]:
    """Return the names of files that are neither segments nor their indexes."""
    return sorted(bench.files(".cleaned") + bench.files(".swap") + bench.files(".tmp"))


def test_a_compaction_waits_for_room_for_its_result_and_for_appends(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path)
    for i in range(12):
        put(bench, ("a", f"{i}" * 20))
    bench.log.roll()
    bench.log.flush()
    before = bench.files(".log")
    bench.disk.free = 16 * 1024 * 1024
    with pytest.raises(KafkaStorageError, match=r"waits until 16\.\d MiB are free"):
        bench.log.compact(NOW)
    assert bench.files(".log") == before
    assert leftovers(bench) == []
    bench.disk.free += 1000
    assert bench.log.compact(NOW) is not None
    assert len(keys(bench)) == 1


def test_a_compaction_gives_back_the_room_that_others_need_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = compacted_bench(tmp_path, segment_bytes=8_000_000)
    for i in range(6):
        put(bench, (f"key-{i}", "x" * 600_000))
    bench.log.roll()
    bench.log.flush()
    real = bench.disk.open

    def opening(path: Path, *, create: bool = False, writable: bool = False) -> File:
        if path.suffix == ".cleaned":
            bench.disk.free = 16 * 1024 * 1024
        return real(path, create=create, writable=writable)

    monkeypatch.setattr(bench.disk, "open", opening)
    with pytest.raises(KafkaStorageError, match="waits until"):
        bench.log.compact(NOW)
    assert leftovers(bench) == []
    bench.append_records([(NOW, b"a", b"another", [])])


@pytest.mark.parametrize("fault", ["write", "sync", "rename", "stop"])
def test_a_compaction_that_fails_leaves_no_file_behind(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = compacted_bench(tmp_path)
    for i in range(12):
        put(bench, ("a", f"{i}" * 20))
    bench.log.roll()
    bench.log.flush()
    before = keys(bench)
    real = bench.disk.open

    def opening(path: Path, *, create: bool = False, writable: bool = False) -> File:
        if path.suffix == ".cleaned":
            if fault == "write":
                bench.disk.room = 10
            elif fault == "stop":
                bench.log.end_maintenance()
        return real(path, create=create, writable=writable)

    monkeypatch.setattr(bench.disk, "open", opening)
    bench.disk.sync_fails = fault == "sync"
    bench.disk.rename_fails = ".cleaned" if fault == "rename" else ""
    if fault == "stop":
        assert bench.log.compact(NOW) is None
    else:
        with pytest.raises(KafkaStorageError):
            bench.log.compact(NOW)
    assert leftovers(bench) == []
    assert keys(bench) == before


@pytest.mark.parametrize("goes_on", ["compaction", "retention", "start"])
def test_an_exchange_of_segments_that_was_interrupted_is_finished(
    tmp_path: Path, goes_on: str
) -> None:
    bench = compacted_bench(tmp_path, segment_bytes=300)
    for i in range(12):
        put(bench, ("a", f"{i}" * 20))
    bench.log.roll()
    bench.log.update_config(replace(bench.config, segment_bytes=2000))
    bench.log.flush()
    before = keys(bench)
    bench.disk.rename_fails = ".swap"
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        bench.log.compact(NOW)
    assert len(bench.files(".log")) < len(bench.log.segments)
    assert keys(bench) == before
    bench.disk.rename_fails = ""
    if goes_on == "compaction":
        put(bench, ("b", "1"))
        compact(bench)
    elif goes_on == "retention":
        assert bench.log.apply_retention(NOW) == 0
        put(bench, ("b", "1"))
    else:
        bench.open()
        put(bench, ("b", "1"))
    assert [key for _, key, _ in keys(bench)] == ["a", "b"]
    assert leftovers(bench) == []
    bench.open()
    assert [key for _, key, _ in keys(bench)] == ["a", "b"]


def test_a_batch_of_very_many_records_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = compacted_bench(tmp_path)
    many: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        (NOW, b"a", b"", [])
    ] * 250_001
    bench.append_records(many, compression=4)
    put(bench, ("b", "1"))
    bench.append_records(many[1:], compression=4)
    put(bench, ("b", "2"))
    compact(bench)
    while bench.log.compact(NOW) is not None:
        pass  # each pass takes so many records
    assert "has 250001 records and stays" in caplog.text
    found = keys(bench)
    assert len(found) == 250_003
    assert [each[:2] for each in found[-2:]] == [(500_001, "a"), (500_002, "b")]


@pytest.mark.parametrize("compression", range(5))
def test_a_record_without_a_key_is_refused_whatever_compresses_it(
    tmp_path: Path, compression: int
) -> None:
    bench = compacted_bench(tmp_path)
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        (NOW, key, b"value", []) for key in (b"k", None, b"k", None)
    ]
    with pytest.raises(InvalidRecord, match="needs a key") as raised:
        bench.append_records(rows, compression=compression)
    assert [index for index, _ in raised.value.record_errors] == [1, 3]
    put(bench, ("a", "1"), compression=compression)


def test_a_damaged_segment_is_not_rewritten(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path)
    for i in range(12):
        put(bench, ("a", f"{i}" * 20))
    bench.log.roll()
    bench.log.flush()
    path = bench.log.segments[1].path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(KafkaStorageError, match="is damaged: the CRC does not match"):
        bench.log.compact(NOW)
    assert path.read_bytes() == content


def test_closing_or_deleting_a_log_does_not_wait_for_a_compaction(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path, segment_bytes=50_000)
    for i in range(3000):
        put(bench, (f"key-{i}", "x" * 100))
    bench.log.roll()
    bench.log.flush()
    for end in ("close", "delete"):
        started = threading.Event()
        results: list[object] = []

        def work(started: threading.Event = started, results: list[object] = results) -> None:
            started.set()
            results.append(bench.log.compact(NOW))

        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        getattr(bench.log, end)()
        thread.join()
        bench.open()
        assert results
    assert bench.log.log_end_offset == 0


class Held:
    """A compaction in a thread that stands still where it opens its first segment."""

    def __init__(self, bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stands = threading.Event()
        self.may_go_on = threading.Event()
        self.results: list[object] = []
        bench.log.roll()
        bench.log.flush()
        self._thread = threading.Thread(target=self._work, args=(bench.log,))
        real = bench.disk.open

        def opening(path: Path, *, create: bool = False, writable: bool = False) -> File:
            if threading.current_thread() is self._thread and path.suffix == ".log":
                self.stands.set()
                self.may_go_on.wait(60)
            return real(path, create=create, writable=writable)

        monkeypatch.setattr(bench.disk, "open", opening)
        self._thread.start()
        assert self.stands.wait(60)

    def _work(self, log: Log) -> None:
        self.results.append(log.compact(NOW))

    def end(self) -> object:
        """Let it go on; return its result."""
        self.may_go_on.set()
        self._thread.join(60)
        (result,) = self.results
        return result


def test_a_leader_does_not_wait_for_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = compacted_bench(tmp_path)
    for number in range(30):
        put(bench, (f"key-{number % 3}", "x" * 30))
    held = Held(bench, monkeypatch)
    leading = threading.Thread(target=bench.log.continue_behind_acknowledged)
    leading.start()
    leading.join(60)
    assert not leading.is_alive()
    assert held.end() is not None
    assert [key for _, key, _ in keys(bench)] == ["key-0", "key-1", "key-2"]


def test_a_compaction_ends_early_for_who_has_to_cut_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = compacted_bench(tmp_path)
    for number in range(30):
        put(bench, (f"key-{number % 3}", "x" * 30))
    held = Held(bench, monkeypatch)
    cutting = threading.Thread(target=bench.log.truncate_fully_and_start_at, args=(100,))
    cutting.start()
    while not bench.log._pauses:
        assert cutting.is_alive()
    assert held.end() is None
    cutting.join(60)
    assert not cutting.is_alive()
    assert bench.log.log_start_offset == bench.log.log_end_offset == 100
    # The next one is not stopped.
    for number in range(30):
        put(bench, (f"key-{number % 3}", "y" * 30))
    compact(bench)
    assert len(keys(bench)) == 3


def test_more_keys_than_memory_are_done_in_several_passes(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path)
    for i in range(40):
        put(bench, (f"key-{i % 20}", f"{i}"))
    bench.log.roll()
    bench.log.flush()
    ends = []
    while True:
        closed = bench.log.segments[:-1]
        small = Compaction(bench.disk, bench.directory, bench.config, 0, NOW, keys_max=7)
        result = small.run(closed, bench.log._replace_segments)
        if result is None:
            break
        ends.append(result.first_dirty_offset)
    assert len(ends) > 3
    assert ends == sorted(set(ends))
    assert keys(bench) == [(i, f"key-{i % 20}", f"{i}") for i in range(20, 40)]


records = st.lists(
    st.tuples(st.sampled_from("abcdefg"), st.none() | st.sampled_from(["1", "2", "x" * 60])),
    min_size=1,
    max_size=4,
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "compact", "reopen", "crash"]),
        records,
        st.sampled_from([0, 3, 4]),
        st.integers(0, HOUR_MS),
    ),
    max_size=30,
)


@given(steps)
@settings(max_examples=60)
def test_whoever_reads_a_compacted_log_ends_up_with_the_same_table(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[tuple[str, list[tuple[str, str | None]], int, int]],
) -> None:
    bench = compacted_bench(tmp_path_factory.mktemp("log"))
    everything: list[tuple[int, str, str | None]] = []
    now = NOW
    for action, pairs, codec, passed in history:
        if action == "put":
            for pair in pairs:
                everything.append((len(everything), *pair))
            put(bench, *pairs, compression=codec)
        elif action == "compact":
            now += passed
            compact(bench, now)
        else:
            if action == "reopen":
                bench.log.close()
            bench.open()
        assert bench.log.log_end_offset == len(everything)
        found = keys(bench)
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets))
        assert set(found) <= set(everything)
        newest = {key: (offset, key, value) for offset, key, value in everything}
        table = {key: value for _, key, value in everything if value is not None}
        assert {record for record in newest.values() if record[2] is not None} <= set(found)
        read: dict[str, str | None] = {}
        for _, key, value in found:
            read[key] = value
        assert {k: v for k, v in read.items() if v is not None} == {
            key: record[2] for key, record in newest.items() if record[2] is not None
        }
        assert set(table) >= {key for key, value in read.items() if value is not None}
        # Every offset can be read from, whether its record still exists or not.
        for offset in range(0, len(everything), 3):
            rest = [each for each in offsets if each >= offset]
            data = bench.log.read(offset, 1)
            first = [each[0] for each in iterate_records(data) if each[0] >= offset]
            assert first[:1] == rest[:1] or not first


class StoppingDisk(SystemDisk):
    """Simulates a process that is killed at its n-th change of the directory."""

    def __init__(self, changes: int) -> None:
        self.changes = changes

    def _step(self) -> None:
        if self.changes == 0:
            raise InterruptedError("killed")
        self.changes -= 1

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def replace(self, path: Path, data: object) -> None:
        self._step()
        super().replace(path, data)  # type: ignore[arg-type]

    def fsync_directory(self, directory: Path) -> None:
        self._step()
        super().fsync_directory(directory)


def test_a_kill_at_any_moment_of_a_compaction_leaves_a_sound_log(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path / "original")
    for i in range(7):
        put(bench, ("a", f"{i}" + "x" * 100), (f"key-{i}", "1"))
    compact(bench)
    for i in range(7):
        put(bench, (f"key-{i}", "2"), ("b", f"{i}"))
    bench.log.roll()
    bench.log.flush()
    expected = {key: (offset, value) for offset, key, value in keys(bench)}
    moments = 0
    while True:
        copy = tmp_path / f"{moments}"
        shutil.copytree(bench.directory.parent, copy)
        victim = compacted_bench(copy)
        disk = StoppingDisk(moments)
        compaction = Compaction(disk, victim.directory, victim.config, 0, NOW)
        closed = victim.log.segments[:-1]
        victim.log._environment = type(victim.environment)(victim.clock, disk)
        try:
            compaction.run(closed, victim.log._replace_segments)
        except InterruptedError:
            moments += 1
        else:
            break
        after = compacted_bench(copy)
        assert {key: (offset, value) for offset, key, value in keys(after)} == expected
        assert after.log.log_end_offset == bench.log.log_end_offset
        assert after.log.bytes_cut == 0
        compact(after)
        assert len(keys(after)) == len(expected)
        shutil.rmtree(copy)
    assert moments > 15


def test_readers_are_not_disturbed_by_a_compaction(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path, segment_bytes=2000)
    problems: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                end = bench.log.log_end_offset
                table: dict[bytes | None, tuple[int, bytes | None]] = {}
                offset = 0
                # A removed record has a newer one further on, which can be behind `end`.
                while offset < bench.log.log_end_offset:
                    data = bench.log.read(offset, 3000)
                    for at, _, key, value, _ in iterate_records(data):
                        if offset <= at:
                            table[key] = at, value
                    offset = scan_batches(data)[0][-1].next_offset
                assert len(table) >= min(end, 50)
                for key, (at, value) in table.items():
                    assert key == b"key-%d" % (at % 50)
                    assert value == b"%d" % at
        except BaseException as error:
            problems.append(error)

    def clean() -> None:
        try:
            while not done.is_set():
                bench.log.flush()
                bench.log.compact(NOW)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=target) for target in (read, read, clean)]
    for thread in threads:
        thread.start()
    for i in range(2000):
        put(bench, (f"key-{i % 50}", f"{i}"))
    done.set()
    for thread in threads:
        thread.join()
    assert not problems
    compact(bench)
    assert [offset for offset, _, _ in keys(bench)] == list(range(1950, 2000))


def test_a_quiet_log_is_compacted_too_when_max_compaction_lag_is_over(tmp_path: Path) -> None:
    bench = compacted_bench(tmp_path, segment_bytes=10_000, max_compaction_lag_ms=HOUR_MS)
    put(bench, ("erased", "what went"), ("other", "stays"))
    put(bench, ("erased", None))
    bench.log.flush()
    assert bench.log.compact(NOW + HOUR_MS) is None
    bench.log.compact(NOW + HOUR_MS + 1)
    bench.log.flush()
    bench.log.compact(NOW + HOUR_MS + 2)
    assert [key for _, key, value in keys(bench) if value is not None] == ["other"]
    assert not any(b"what went" in path.read_bytes() for path in bench.directory.glob("*.log"))
