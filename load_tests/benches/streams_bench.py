"""Measures topologies of `waylog streams`: fixes a second, CPU for a fix, and memory.

    python -m load_tests.benches.streams_bench --topology speed
    python -m load_tests.benches.streams_bench --topology meetings --friends 10
    python -m load_tests.benches.streams_bench --topology geofences,speed,silence
    python -m load_tests.benches.streams_bench --topology geofences --fences 100 --java FOLDER
    python -m load_tests.benches.streams_bench --topology geofences --fences 100000
    python -m load_tests.benches.streams_bench --topology geofences --fences 100000 \\
        --tracks geolife.csv.gz
    python -m load_tests.benches.streams_bench --topology trips --rate 20000 \\
        --processing-guarantee exactly_once_v2
    python -m load_tests.benches.streams_bench --topology meetings --friends 2 --companions 2 \\
        --devices 1000 --interval 60 --gaps 0.3 --property wait_s=100000 --settle 75

Fixes of 10,000 devices lie in topic `location` before the topology starts. CPU is that of its
process, librdkafka's threads included, from the first tenth of the fixes to the last one; several
topologies run in one process, and a fix is done when all of them have it, and when the processors
of `heat-map` and `meetings` have taken all that is handed on over topics. The
places of the fixes are random walks, or out of a file with lines `uid,lat,lon,...`; half of the
geofences lie where fixes are, the others up to two degrees away. They belong to everybody unless
`--fences-of user` gives each user some of them.

`results` are the committed records of each topic that is written, `keys` how many keys these have:
where a topology tells what has changed from time to time, as `heat-map` does, the number of records
depends on the speed, that of the keys doesn't. `--settle` waits for what is told only some time
after the last fix; `--results` writes all of it to a file, to be compared. Random walks have no
silence, no day's end, and nobody near anybody: for that there are `--interval`, `--gaps` and
`--companions`.

With `--rate` fixes come while the topology runs, so many a second: the figures are the lag, which
is bounded if it is no larger at the end, and the latency from a fix to the record of its state that
readers of committed records see. `resolver` is measured likewise, by its addresses.

`--java` runs the same in Kafka Streams (load_tests/benches/java): speed, geofences, silence, trips,
heat-map, meetings, and word-count, which counts fixes by user and is made of operators in both. The
folder has the jars of org.apache.kafka:kafka-streams, org.slf4j:slf4j-simple and com.uber:h3 (of
which heat-map needs the library in it for this machine) with all that these need, and a JDK has to
be there.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from load_tests.benches.connect.files_bench import broker_process
from load_tests.benches.filling import fill
from load_tests.benches.paced_fixes import await_members, coming_fixes, measured_pace
from load_tests.benches.streams.results import (
    BETWEEN,
    COUNTS,
    WORD_COUNT,
    Result,
    await_taken,
    result_topics,
    results,
)
from load_tests.benches.streams.walks import STEP, Place, Walks, records
from load_tests.processor_time import read_process
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.topics import (
    ADDRESS,
    FRIENDSHIP_TOPIC,
    GEOFENCE_TOPIC,
    KEYED_PARTITIONS,
    LOCATION,
    Topic,
)
from waylog.messages import decode_address

_LIMIT_S: Final = 600.0
_LOOK_S: Final = 0.02
_BEGIN_MS: Final = 1_700_000_000_000
#: Part of the fixes after which measuring begins: by then all is loaded.
_WARM: Final = 0.1
#: The same in seconds, of fixes that come at a rate.
_WARM_S: Final = 10.0

_JAVA: Final = Path(__file__).parent / "java"
_JAVA_MAIN: Final = "StreamsBench"
#: No topology, but measured likewise.
RESOLVER: Final = "resolver"
_WORD_COUNT_MODULE: Final = """
from consumers.streams.builder import stream
from waylog.messages import Fix

topology = (
    stream("word-count", "location", Fix).group_by(lambda fix: fix.user).count().to("fixes-by-user")
)
"""


def main(argv: list[str] | None = None) -> int:
    """Run the measurement; print a line of JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.streams_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--topology", default="geofences", help="default: %(default)s")
    add("--fixes", type=int, default=400_000, help="default: %(default)s")
    add("--devices", type=int, default=10_000, help="default: %(default)s")
    add("--fences", type=int, default=0, help="circles of 50 to 1000 m; default: %(default)s")
    add("--fences-of", choices=("everybody", "user"), default="everybody")
    add("--friends", type=int, default=0, help="of each user, for meetings; default: %(default)s")
    add("--companions", type=int, default=1, help="devices that move together; default: 1")
    add("--interval", type=float, default=5.0, help="s between two fixes; default: %(default)s")
    add("--gaps", type=float, default=0.0, help="part of the fixes that is missing; default: 0")
    add("--tracks", type=Path, help="CSV (gzip) with uid, lat and lon in its first columns")
    add("--java", type=Path, metavar="FOLDER", help="measure Kafka Streams, with these jars")
    add("--property", action="append", default=[], metavar="NAME=VALUE", help="of the topology")
    add("--processing-guarantee", default="at_least_once", help="default: %(default)s")
    add("--rate", type=int, default=0, help="fixes a second that come; default: all are there")
    add("--seconds", type=float, default=60.0, help="of measuring at a rate; default: %(default)s")
    add("--settle", type=float, default=0.0, help="s to wait after the last fix; default: 0")
    add("--results", type=Path, metavar="FILE", help="write all results here, sorted")
    arguments = parser.parse_args(argv)
    if arguments.rate and (arguments.java is not None or arguments.topology == WORD_COUNT):
        parser.error("--rate: only for topologies that come with Waylog, and for the resolver")
    with (
        tempfile.TemporaryDirectory(prefix="waylog-bench-") as name,
        broker_process(Path(name)) as servers,
    ):
        walks = _walks(arguments)
        ensure_topics(servers)
        ensure_topics(servers, _topics(arguments))
        _define(servers, arguments, next(walks.rounds()))
        _befriend(servers, arguments)
        if arguments.rate:
            found = _paced(servers, arguments)
        else:
            rounds = (number // arguments.devices for number in itertools.count())
            interval_ms = round(arguments.interval * 1000)
            times = (_BEGIN_MS + number * interval_ms for number in rounds)
            fixes = records(walks.rounds(), times, arguments.gaps)
            fill(servers, itertools.islice(fixes, arguments.fixes))
            found = _measured(servers, arguments)
        print(json.dumps(found), flush=True)
    return 0


def _walks(arguments: argparse.Namespace) -> Walks:
    step = STEP
    if arguments.rate:
        # As fast, whatever the interval.
        step *= arguments.devices / arguments.rate / arguments.interval
    return Walks(arguments.devices, arguments.companions, step, arguments.tracks)


def _topics(arguments: argparse.Namespace) -> list[Topic]:
    """Return the topics that the measurement needs beside the platform's.

    Those of results keep all records here, so that they can be counted.
    """
    names = _names(arguments)
    between = [topic for name in names for topic in BETWEEN.get(name, ())]
    written = [*between, *result_topics(names), COUNTS]
    return [
        *(GEOFENCE_TOPIC, FRIENDSHIP_TOPIC),
        *(Topic(name, KEYED_PARTITIONS) for name in dict.fromkeys(written)),
    ]


def _define(servers: str, arguments: argparse.Namespace, places: list[Place]) -> None:
    chance = random.Random(2)
    producer = Producer(producer_config(servers, "bench"))
    for number in range(arguments.fences):
        device = chance.randrange(len(places))
        lat, lon = places[device]
        if number % 2:
            lat, lon = lat + chance.uniform(-2, 2), lon + chance.uniform(-2, 2)
        else:
            lat, lon = lat + chance.gauss(0, 0.002), lon + chance.gauss(0, 0.002)
        radius = 50 * 20 ** chance.random()
        owner = "*" if arguments.fences_of == "everybody" else f"user{device}"
        circle = {
            "lat": max(-90.0, min(90.0, lat)),
            "lon": math.remainder(lon, 360),
            "radius": radius,
        }
        value = json.dumps({"circle": circle, "dwell": 600})
        producer.produce(GEOFENCE_TOPIC.name, value, f"{owner}/{number}")
        producer.poll(0)
    assert producer.flush(_LIMIT_S) == 0


def _befriend(servers: str, arguments: argparse.Namespace) -> None:
    """Make friends of users whose numbers follow each other."""
    if not arguments.friends:
        return
    producer = Producer(producer_config(servers, "bench"))
    for number in range(arguments.devices):
        for other in range(number + 1, number + 1 + arguments.friends // 2):
            names = f"user{number}", f"user{other % arguments.devices}"
            for one, friend in (names, names[::-1]):
                producer.produce(FRIENDSHIP_TOPIC.name, b'{"since":0}', f"{one}\n{friend}")
        producer.poll(0)
    assert producer.flush(_LIMIT_S) == 0


def _live(
    arguments: argparse.Namespace, now_ms: Callable[[], int]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield fixes that are made when they are sent."""
    return records(_walks(arguments).rounds(), iter(now_ms, None))


def _paced(servers: str, arguments: argparse.Namespace) -> dict[str, Any]:
    groups = _groups(arguments)
    results, time_of = f"{groups[0]}-changelog", _time_of_state
    if arguments.topology == RESOLVER:
        results, time_of = ADDRESS, _time_of_address
    source = functools.partial(_live, arguments)
    with _topology_process(servers, arguments) as pid:
        await_members(servers, groups)
        with coming_fixes(servers, source, arguments.rate):
            time.sleep(_WARM_S)
            cpu_s, began, sent = _cpu_s(pid), time.monotonic(), _sent(servers)
            pace = measured_pace(servers, groups, results, time_of, arguments.seconds)
            cpu_s, seconds = _cpu_s(pid) - cpu_s, time.monotonic() - began
            fixes = _sent(servers) - sent
            memory_mb = _memory_mb(pid)
    return _arguments_of(arguments) | {
        "seconds": round(seconds, 2),
        "fixes_per_s": round(fixes / seconds),
        **pace.report(),
        "cores": round(cpu_s / seconds, 2),
        "us_cpu_per_fix": round(1e6 * cpu_s / fixes, 2),
        "memory_mb": round(memory_mb),
    }


def _time_of_state(value: bytes) -> int:
    """Return the first member of a state, which is an array: the time of the newest fix."""
    return int(value[1 : value.index(b",")])


def _time_of_address(value: bytes) -> int:
    return decode_address(value).time


def _sent(servers: str) -> int:
    """Return how many fixes the log has got."""
    consumer = Consumer(consumer_config(servers, "bench", "bench"))
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(LOCATION, number), timeout=10.0)[1]
            for number in range(KEYED_PARTITIONS)
        )
    finally:
        consumer.close()


def _measured(servers: str, arguments: argparse.Namespace) -> dict[str, Any]:
    consumers = [Consumer(consumer_config(servers, "bench", group)) for group in _groups(arguments)]
    partitions = [TopicPartition(LOCATION, number) for number in range(KEYED_PARTITIONS)]

    def done() -> float:
        return min(
            sum(max(0, each.offset) for each in consumer.committed(partitions, timeout=10.0))
            for consumer in consumers
        )

    try:
        with _topology_process(servers, arguments) as pid:
            _await(lambda: done() >= arguments.fixes * _WARM)
            first, cpu_s, began = done(), _cpu_s(pid), time.monotonic()
            _await(lambda: done() >= arguments.fixes)
            for group, topic in _between(arguments):
                await_taken(servers, group, topic, _await)
            cpu_s, seconds = _cpu_s(pid) - cpu_s, time.monotonic() - began
            fixes, memory_mb = arguments.fixes - first, _memory_mb(pid)
            time.sleep(arguments.settle)
    finally:
        for consumer in consumers:
            consumer.close()
    found = sorted(results(servers, result_topics(_names(arguments))))
    if arguments.results is not None:
        _write(found, arguments.results)
    return _arguments_of(arguments) | {
        "fixes": round(fixes),
        "seconds": round(seconds, 2),
        "fixes_per_s": round(fixes / seconds),
        "us_cpu_per_fix": round(1e6 * cpu_s / fixes, 2),
        "results": Counter(topic for topic, _, _ in found),
        "keys": Counter(topic for topic, _ in sorted({each[:2] for each in found})),
        "memory_mb": round(memory_mb),
    }


def _await(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not is_done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not all fixes within {_LIMIT_S:.0f} s")
        time.sleep(_LOOK_S)


def _write(found: list[Result], path: Path) -> None:
    with path.open("w", encoding="utf-8") as lines:
        for topic, key, value in found:
            print(topic, json.dumps(key.decode()), value.decode(), file=lines)


def _names(arguments: argparse.Namespace) -> list[str]:
    return str(arguments.topology).split(",")


def _between(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield groups and the topics of other processors that they read, the first one first."""
    for name in _names(arguments):
        for number, topic in enumerate(BETWEEN.get(name, ()), start=2):
            java = arguments.java is not None
            yield (f"java-{name}" if java else f"streams-{name}-{number}"), topic


def _arguments_of(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "topology": arguments.topology,
        "engine": "waylog" if arguments.java is None else "Kafka Streams",
        "fences": arguments.fences,
        "fences_of": arguments.fences_of,
        "friends": arguments.friends,
        "guarantee": arguments.processing_guarantee,
    }


def _groups(arguments: argparse.Namespace) -> list[str]:
    """Return the groups that read topic `location`."""
    if arguments.java is not None:
        return [f"java-{arguments.topology}"]
    if arguments.topology == RESOLVER:
        return [RESOLVER]
    return [f"streams-{name}" for name in _names(arguments)]


@contextmanager
def _topology_process(servers: str, arguments: argparse.Namespace) -> Iterator[int]:
    with tempfile.TemporaryDirectory(prefix="waylog-bench-") as name:
        words = _words(servers, arguments, Path(name))
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait()


def _words(servers: str, arguments: argparse.Namespace, folder: Path) -> list[str]:
    """Return the command line of the topology."""
    guarantee = arguments.processing_guarantee
    if arguments.java is not None:
        classes = f"{arguments.java}/*"
        sources = sorted(map(str, _JAVA.glob("*.java")))
        subprocess.run(["javac", "-d", str(folder), "-cp", classes, *sources], check=True)
        return [
            *("java", "-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
            *(f"-Dwaylog.{each}" for each in arguments.property),
            *("-cp", f"{folder}:{classes}", _JAVA_MAIN),
            *(servers, arguments.topology, guarantee, str(folder / "states")),
        ]
    names = _names(arguments)
    if arguments.topology == WORD_COUNT:
        module = folder / "word_count.py"
        module.write_text(_WORD_COUNT_MODULE)
        names = ["--module", str(module)]
    run = [RESOLVER] if arguments.topology == RESOLVER else ["streams", "run", *names]
    words = [*run, "--bootstrap-servers", servers]
    words += (word for each in arguments.property for word in ("--property", each))
    return [sys.executable, "-m", "waylog.cli", *words, "--processing-guarantee", guarantee]


def _cpu_s(pid: int) -> float:
    found = read_process(pid)
    if found is None:
        raise RuntimeError("the topology has ended")
    return found.cpu_s


def _memory_mb(pid: int) -> float:
    """Return the most memory that a process has had."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    raise SystemExit(main())
