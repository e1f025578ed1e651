"""Index files that are replaced, damaged and removed during lookups."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from geoservice.index.format import read_header
from geoservice.index.store import IndexUnavailable
from geoservice.reverse import watch
from geoservice.reverse.geocoder import Geocoder
from geoservice.reverse.watch import WatchedGeocoder
from tests.dying_threads import assert_process_ends
from tests.file_descriptors import none_free
from tests.geoservice.index_files import write_renamed
from tests.http_session import http_session

VADUZ = (47.141, 9.5209)


@pytest.fixture(scope="module")
def versions(world_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return two indexes with different names for a town, by their versions."""
    folder = tmp_path_factory.mktemp("versions")
    other = folder / "other.bin"
    write_renamed(world_path, other, b"Vaduz", b"Zuduv")
    same = folder / "same.bin"
    shutil.copy(world_path, same)
    return {Geocoder.open(path).index_version: path for path in (same, other)}


NAMES = ("Vaduz", "Zuduv")


@pytest.fixture
def served(versions: dict[str, Path], tmp_path: Path) -> Path:
    path = tmp_path / "served.bin"
    shutil.copy(next(iter(versions.values())), path)
    return path


@pytest.fixture
def watched(served: Path) -> Iterator[WatchedGeocoder]:
    watched = WatchedGeocoder(served, check_interval_s=0.01)
    yield watched
    watched.close()


def put(source: Path, target: Path) -> None:
    """Replace a file atomically, as an import does."""
    beside = target.with_suffix(".beside")
    shutil.copy(source, beside)
    beside.replace(target)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def name_at(geocoder: Geocoder) -> str:
    place = geocoder.reverse(*VADUZ).place
    assert place is not None
    return place.name


def test_a_file_put_in_place_of_the_index_is_taken_into_use(
    watched: WatchedGeocoder, served: Path, versions: dict[str, Path]
) -> None:
    first, second = versions
    before = watched.current
    assert (before.index_version, name_at(before)) == (first, "Vaduz")
    put(versions[second], served)
    until(lambda: watched.current.index_version == second)
    assert name_at(watched.current) == "Zuduv"
    # A caller that still holds the previous geocoder can use it.
    assert (before.index_version, name_at(before)) == (first, "Vaduz")


def test_a_swap_under_load_gives_no_wrong_answer(
    watched: WatchedGeocoder, served: Path, versions: dict[str, Path]
) -> None:
    names = dict(zip(versions, NAMES, strict=True))
    stopping = threading.Event()
    answers: dict[str, int] = dict.fromkeys(versions, 0)
    wrong: list[tuple[str, str]] = []
    lats, lons = [VADUZ[0]] * 50, [VADUZ[1]] * 50

    def ask() -> None:
        while not stopping.is_set():
            for result in watched.current.reverse_batch(lats, lons):
                answers[result.index_version] += 1
                if result.display_name != f"{names[result.index_version]}, Liechtenstein":
                    wrong.append((result.index_version, result.display_name))

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    try:
        for round_ in range(10):
            version = list(versions)[(round_ + 1) % 2]
            seen = answers[version]
            put(versions[version], served)
            until(lambda version=version, seen=seen: answers[version] > seen)  # type: ignore[misc]
    finally:
        stopping.set()
        for thread in asking:
            thread.join()
    assert wrong == []
    assert min(answers.values()) > 0


@pytest.mark.parametrize("damage", ["flipped", "half written", "empty", "foreign"])
def test_a_file_that_cannot_be_used_is_refused_and_the_old_index_goes_on(
    watched: WatchedGeocoder,
    served: Path,
    versions: dict[str, Path],
    damage: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = versions
    data = bytearray(versions[second].read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    bad = tmp_path / "bad.bin"
    contents: dict[str, bytes] = {
        "half written": bytes(data[: len(data) // 2]),
        "empty": b"",
        "foreign": b"PK\3\4" * 99,
    }
    bad.write_bytes(contents.get(damage, bytes(data)))
    with caplog.at_level(logging.ERROR):
        bad.replace(served)
        until(lambda: watched.refused)
    assert (watched.current.index_version, name_at(watched.current)) == (first, "Vaduz")
    [line] = caplog.messages
    assert f"going on with index {first}" in line
    assert str(served) in line
    # The next usable file is opened.
    put(versions[second], served)
    until(lambda: watched.current.index_version == second)
    assert watched.refused is None


def test_a_good_file_that_could_not_be_opened_for_a_moment_is_taken(
    watched: WatchedGeocoder,
    served: Path,
    versions: dict[str, Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, second = versions
    beside = served.with_suffix(".beside")
    shutil.copy(versions[second], beside)
    with none_free():
        beside.replace(served)
        until(lambda: watched.refused)
    until(lambda: watched.current.index_version == second)
    assert watched.refused is None
    assert caplog.text.count("Too many open files") == 1


def test_a_file_whose_change_could_not_be_told_is_told_again(
    served: Path, versions: dict[str, Path]
) -> None:
    told: list[str] = []
    failures = [MemoryError()]

    def tell(geocoder: Geocoder) -> None:
        if failures:
            raise failures.pop()
        told.append(geocoder.index_version)

    watched = WatchedGeocoder(served, check_interval_s=0.01, on_change=tell)
    try:
        put(versions[list(versions)[1]], served)
        until(lambda: told)
        assert told == [watched.current.index_version] == [list(versions)[1]]
    finally:
        watched.close()


def test_an_index_that_is_removed_stays_in_use_until_another_comes(
    watched: WatchedGeocoder, served: Path, versions: dict[str, Path]
) -> None:
    served.unlink()
    until(lambda: watched.refused)
    assert name_at(watched.current) == "Vaduz"
    put(versions[list(versions)[1]], served)
    until(lambda: name_at(watched.current) == "Zuduv")


def test_a_file_that_is_written_to_while_in_use_is_not_asked_any_more(
    watched: WatchedGeocoder, served: Path, world_path: Path
) -> None:
    """The memory map changes with the file: the town's name would be the one just written there."""
    assert watched.current.index.path == served
    section = read_header(memoryview(served.read_bytes())).sections["strings"]
    with served.open("r+b") as file:
        file.seek(section.offset)
        file.write(bytes(section.length))
        file.flush()
        os.fsync(file.fileno())
    until(lambda: watched.refused)
    until(lambda: watched.current.index.path != served)
    assert name_at(watched.current) == "Vaduz"
    put(world_path, served)
    until(lambda: watched.current.index.path == served)


def test_at_the_start_an_unusable_index_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IndexUnavailable, match="no such index"):
        WatchedGeocoder(tmp_path / "none.bin")


async def test_a_running_server_follows_its_index(served: Path, versions: dict[str, Path]) -> None:
    """A server process over HTTP: each answer is from an index that was there, and none fails."""
    first, second = versions
    words = ["geo", "serve", "--listen", "127.0.0.1:0", "--index", str(served)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "waylog.cli", *words, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        match = re.search(r"http=(\S+)", line)
        assert match, line
        async with http_session(f"http://{match[1]}") as client:
            seen: list[str] = []
            versions_seen: list[str] = []

            async def ask() -> None:
                while True:
                    async with client.get(
                        "/reverse?lat=47.141&lon=9.5209&format=jsonv2"
                    ) as response:
                        assert response.status == 200
                        seen.append(json.loads(await response.read())["name"])

            async def status() -> str:
                async with client.get("/status?format=json") as response:
                    versions_seen.append((await response.json())["index_version"])
                    return versions_seen[-1]

            asking = [asyncio.create_task(ask()) for _ in range(4)]
            assert await status() == first
            put(versions[second], served)
            deadline = time.monotonic() + 60
            while await status() != second:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            answered = len(seen)
            while len(seen) < answered + 100:
                await asyncio.sleep(0.02)
            for task in asking:
                assert not task.done()
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        assert set(seen) == set(NAMES)
        assert set(seen[-20:]) == {"Zuduv"}
    finally:
        process.terminate()
        await process.communicate()


def test_a_watching_thread_takes_its_process_with_it(
    versions: dict[str, Path], served: Path
) -> None:
    beside = served.with_name("beside")
    shutil.copy(list(versions.values())[1], beside)
    assert_process_ends(
        f"""
        import os
        from pathlib import Path
        from geoservice.reverse.watch import WatchedGeocoder
        served = Path("{served}")
        watched = WatchedGeocoder(served, check_interval_s=0.01, on_change=die)
        os.replace("{beside}", served)
        """,
        "index-watch",
    )


def test_a_file_system_that_hangs_does_not_keep_the_process(
    versions: dict[str, Path], served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_CLOSE_S", 0.1)
    changed, hanging = threading.Event(), threading.Event()

    def hang(_geocoder: Geocoder) -> None:
        changed.set()
        hanging.wait(60)

    watched = WatchedGeocoder(served, check_interval_s=0.01, on_change=hang)
    put(list(versions.values())[1], served)
    assert changed.wait(60)
    began = time.monotonic()
    watched.close()
    assert time.monotonic() - began < 30
    hanging.set()
