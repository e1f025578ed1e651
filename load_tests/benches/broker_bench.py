"""The log by itself, beside Apache Kafka where its jars are: rate, processor time, latency, memory.

    python -m load_tests.benches.bench --only broker
        codecs, sizes and acks; latency; memory
    python -m load_tests.benches.broker_bench --records 300000
        the same with choices of its own
    python -m load_tests.benches.broker_bench --brokers 3
        three brokers, every record on each

One librdkafka client in Python drives both, in turn and with the same settings, so that what
differs between two rows is the broker. Of several rounds the one that took least processor time
counts: other work on the machine only ever adds to it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from load_tests.benches.broker_processes import APACHE_KAFKA, WAYLOG, MeasuredBroker, default_jars

PARTITIONS: Final = 6
_DISTINCT: Final = 10_000
_BATCH: Final = 1_000
_LINGER_MS: Final = 5
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_LARGE: Final = 1024
#: The number of records of 1 KiB is that of small records divided by this.
_LARGE_SHARE: Final = 5
_TIMEOUT_S: Final = 120.0


class Case(NamedTuple):
    """The settings of one measurement of producing and consuming."""

    size: int  # of a record's value, in bytes
    codec: str
    acks: str

    def __str__(self) -> str:
        return f"{self.size} bytes, {self.codec}, acks={self.acks}"


def cases() -> list[Case]:
    """Return all combinations of both sizes, every codec, and acks 1 and all."""
    return [
        Case(size, codec, acks)
        for size in (120, _LARGE)
        for codec in _CODECS
        for acks in ("all", "1")
    ]


def values(size: int) -> list[bytes]:
    """Return distinct positions as JSON, cut or repeated to `size` bytes."""
    found = []
    for number in range(_DISTINCT):
        parts, length, at = [], 0, number
        while length < size:
            position = {
                "device": f"bench/d{at % 9973:05d}",
                "time": 1_700_000_000_000 + at * 977,
                "lat": round(47 + at % 9973 * 1e-4, 5),
                "lon": round(9 + at % 7919 * 1e-4, 5),
                "speed": at % 37,
                "battery": at % 101,
            }
            parts.append(json.dumps(position, separators=(",", ":")))
            length += len(parts[-1])
            at += 7
        found.append("".join(parts).encode()[:size])
    return found


def create_topic(broker: MeasuredBroker, name: str) -> None:
    """Create a topic of six partitions."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topic = NewTopic(name, PARTITIONS, broker.replication_factor)
    admin.create_topics([topic])[name].result(_TIMEOUT_S)


def throughput(broker: MeasuredBroker, case: Case, records: int, topic: str) -> dict[str, Any]:
    """Produce `records` as fast as the client can, and consume them."""
    from confluent_kafka import Producer

    create_topic(broker, topic)
    batches = [
        [{"value": value} for value in chunk]
        for chunk in _chunks(values(case.size), _BATCH)
    ]  # fmt: skip
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "linger.ms": _LINGER_MS,
            "log_level": 2,
            "acks": case.acks,
            "compression.type": case.codec,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 512 * 1024,
        }
    )
    used, began = broker.cpu_s(), time.monotonic()
    for number in range(records // _BATCH):
        # produce_batch modifies the dictionaries, so it gets copies.
        left = [dict(each) for each in batches[number % len(batches)]]
        while producer.produce_batch(topic, left) < len(left):
            left = [{"value": each["value"]} for each in left if "_error" in each]
            producer.poll(0.01)
    waiting = producer.flush(_TIMEOUT_S)
    produced_s, produced_cpu_s = time.monotonic() - began, broker.cpu_s() - used
    used, began = broker.cpu_s(), time.monotonic()
    read = _consume(broker, topic, records)
    consumed_s, consumed_cpu_s = time.monotonic() - began, broker.cpu_s() - used
    return {
        "passed": waiting == 0 and read == records,
        "produced_per_s": round(records / produced_s),
        "produce_cpu_s": round(produced_cpu_s * 1e6 / records, 3),
        "consumed_per_s": round(records / consumed_s),
        "consume_cpu_s": round(consumed_cpu_s * 1e6 / records, 3),
    }


def _chunks(items: list[bytes], size: int) -> Iterator[list[bytes]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _consume(broker: MeasuredBroker, topic: str, records: int) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "bench", "log_level": 2,
         # With more than the default of 100,000 records queued, the client pauses fetching for a
         # second.
         "enable.auto.commit": False, "queued.min.messages": 1_000_000}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    read = 0
    deadline = time.monotonic() + _TIMEOUT_S
    while read < records and time.monotonic() < deadline:
        for message in consumer.consume(_BATCH, 0.5):
            if message.error() is None and message.value():
                read += 1
    consumer.close()
    return read


# -------------------------------------------------------------------------------------- latency


def latency(
    broker: MeasuredBroker, topic: str, *, rate: int, linger_ms: float, seconds: float
) -> dict[str, Any]:
    """Measure the latency at a fixed rate, from `produce` in one process to `consume` in another.

    The first quarter is not counted.
    """
    create_topic(broker, topic)
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    consumer = context.Process(
        target=_measure_arrivals, args=(broker.bootstrap_servers, topic, results)
    )
    producer = context.Process(
        target=_send_paced, args=(broker.bootstrap_servers, topic, rate, linger_ms, seconds)
    )
    consumer.start()
    results.get()  # the consumer is ready
    producer.start()
    time.sleep(seconds / 4)
    used, began = broker.cpu_s(), time.monotonic()
    producer.join(seconds * 3 / 4 + _TIMEOUT_S)
    cores = (broker.cpu_s() - used) / (time.monotonic() - began)
    latencies_us: list[int] = results.get()
    consumer.join()
    counted = sorted(latencies_us[len(latencies_us) // 4 :])

    def percentile(share: float) -> float:
        return round(counted[min(int(len(counted) * share), len(counted) - 1)] / 1000, 2)

    return {
        "passed": len(latencies_us) == int(rate * seconds),
        "rate": round(len(latencies_us) / seconds),
        "p50_ms": percentile(0.5),
        "p99_ms": percentile(0.99),
        "p999_ms": percentile(0.999),
        "cores": round(cores, 3),
    }


def _send_paced(servers: str, topic: str, rate: int, linger_ms: float, seconds: float) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": linger_ms,
            "enable.idempotence": True,
            "log_level": 2,
        }
    )
    producer.list_topics(topic, _TIMEOUT_S)
    filling = b" " * 99
    total = int(rate * seconds)
    sent = 0
    began = time.monotonic()
    while sent < total:
        due = min(int((time.monotonic() - began) * rate) + 1, total)
        for number in range(sent, due):
            stamp = f"{time.monotonic_ns() // 1000:>20} ".encode()
            producer.produce(topic, stamp + filling, partition=number % PARTITIONS)
        sent = due
        producer.poll(0)
        time.sleep(0.0005)
    producer.flush(_TIMEOUT_S)
    # A mark after each partition's last record tells the reader that it has all of them.
    for number in range(PARTITIONS):
        producer.produce(topic, b"end", partition=number)
    producer.flush(_TIMEOUT_S)


def _measure_arrivals(servers: str, topic: str, results: Any) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    consumer.consume(1, 1.0)
    results.put(None)
    found: list[int] = []
    ended = 0
    deadline = time.monotonic() + 10 * _TIMEOUT_S
    while ended < PARTITIONS and time.monotonic() < deadline:
        # `consume` waits for the full number: request one record first, then those that came with
        # it.
        for message in consumer.consume(1, 0.2) + consumer.consume(500, 0):
            value = message.value()
            if message.error() is not None or value is None:
                continue
            if value == b"end":
                ended += 1
            else:
                found.append(time.monotonic_ns() // 1000 - int(value[:20]))
    consumer.close()
    results.put(found)


# ------------------------------------------------------------------------------------------ all


def measure(
    records: int,
    *,
    jars: Path | None,
    rounds: int = 2,
    wanted: list[Case] | None = None,
    paced: tuple[int, float] | None = (20_000, 8.0),
    lingers_ms: tuple[float, ...] = (5, 0),
    flush: bool = False,
    rest_s: float = 2.0,
    brokers: int = 1,
) -> Iterator[dict[str, Any]]:
    """Measure our broker, and Apache Kafka if `jars` has it; yield one result per row.

    With several `brokers` there are three replicas.

    A round sends `records` of 120 bytes, or a fifth as many of 1 KiB. `paced` is the rate (1/s) and
    the length (s) of a latency measurement. Memory at rest is read after `rest_s`.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        size = f" x {brokers}" if brokers > 1 else ""
        kinds = {WAYLOG: None} | ({APACHE_KAFKA: jars} if jars else {})
        measured = [
            MeasuredBroker(name, Path(folder) / name, brokers=brokers, jars=where, flush=flush)
            for name, where in kinds.items()
        ]
        for broker in measured:
            stack.enter_context(broker)
            time.sleep(rest_s)
        rests = {broker.name: broker.resident_mib() for broker in measured}
        for broker in measured:
            if broker.name == APACHE_KAFKA:
                # A JVM takes several times as long for its first million records.
                throughput(broker, Case(120, "none", "all"), records, "warm-up")
        for at, case in enumerate(cases() if wanted is None else wanted):
            count = records if case.size < _LARGE else records // _LARGE_SHARE
            best: dict[str, dict[str, Any]] = {}
            for turn in range(rounds):
                for broker in measured:
                    found = throughput(broker, case, count, f"case-{at}-{turn}")
                    best[broker.name] = _better(best.get(broker.name), found)
            for name, found in best.items():
                yield {
                    "name": f"{name}{size}: {case}",
                    "broker": name,
                    "kind": "throughput",
                } | found
        for linger_ms in lingers_ms if paced else ():
            assert paced is not None
            quickest: dict[str, dict[str, Any]] = {}
            for turn in range(rounds):
                for broker in measured:
                    found = latency(
                        broker, f"paced-{linger_ms}-{turn}", rate=paced[0],
                        linger_ms=linger_ms, seconds=paced[1],
                    )  # fmt: skip
                    former = quickest.setdefault(broker.name, found)
                    if found["p99_ms"] < former["p99_ms"]:
                        quickest[broker.name] = found
            for name, found in quickest.items():
                yield {
                    "name": f"{name}{size}: {paced[0]}/s, linger {linger_ms} ms",
                    "broker": name,
                    "kind": "latency",
                } | found
        for broker in measured:
            yield {
                "name": f"{broker.name}{size}: start and memory",
                "broker": broker.name,
                "kind": "memory",
                "passed": True,
                "ready_s": round(broker.ready_s, 2),
                "rest_mib": round(rests[broker.name]),
                "loaded_mib": round(broker.resident_mib()),
            }


def _better(one: dict[str, Any] | None, other: dict[str, Any]) -> dict[str, Any]:
    """Return the highest rates and the least processor time of two rounds."""
    if one is None:
        return other
    return {
        "passed": one["passed"] and other["passed"],
        "produced_per_s": max(one["produced_per_s"], other["produced_per_s"]),
        "produce_cpu_s": min(one["produce_cpu_s"], other["produce_cpu_s"]),
        "consumed_per_s": max(one["consumed_per_s"], other["consumed_per_s"]),
        "consume_cpu_s": min(one["consume_cpu_s"], other["consume_cpu_s"]),
    }


def row(result: dict[str, Any]) -> str:
    """Return a result as one line of text."""
    name = result["name"] if result["passed"] else f"{result['name']} FAILED"
    if result["kind"] == "throughput":
        return (
            f"| {name} | {result['produced_per_s']:,} | {result['consumed_per_s']:,} | "
            f"{result['produce_cpu_s']:.2f} | {result['consume_cpu_s']:.2f} |"
        )
    if result["kind"] == "latency":
        return (
            f"| {name} | p50 {result['p50_ms']} ms | p99 {result['p99_ms']} ms | "
            f"p99.9 {result['p999_ms']} ms | {result['cores']:.2f} core |"
        )
    return (
        f"| {name} | ready {result['ready_s']} s | {result['rest_mib']} MiB at rest | "
        f"{result['loaded_mib']} MiB loaded | |"
    )


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 1 when a record was missing."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.broker_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--records", type=int, default=1_000_000, help="of 120 bytes, a round")
    parser.add_argument("--rounds", type=int, default=2, help="how often each is measured")
    parser.add_argument("--codec", choices=_CODECS, action="append", help="may be repeated")
    parser.add_argument("--size", type=int, choices=(120, _LARGE), action="append")
    parser.add_argument("--acks", choices=("1", "all"), action="append")
    parser.add_argument(
        "--brokers", type=int, choices=(1, 3), default=1, help="3: every record on all three"
    )
    parser.add_argument("--no-latency", action="store_true", help="only throughput and memory")
    parser.add_argument("--flush", action="store_true", help="acknowledge after fdatasync")
    parser.add_argument(
        "--jars", type=Path, default=default_jars(), metavar="FOLDER",
        help="Apache Kafka's jars (default: where `make test-kafka` keeps them)",
    )  # fmt: skip
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args(argv)
    wanted = [
        case
        for case in cases()
        if (not arguments.codec or case.codec in arguments.codec)
        and (not arguments.size or case.size in arguments.size)
        and (not arguments.acks or case.acks in arguments.acks)
    ]
    if not arguments.json:
        print("| broker | produced a second | consumed a second | CPU s a million produced |"
              " CPU s a million consumed |\n|---|---|---|---|---|", flush=True)  # fmt: skip
    passed = True
    for result in measure(
        arguments.records,
        jars=None if arguments.alone else arguments.jars,
        rounds=arguments.rounds,
        wanted=wanted,
        paced=None if arguments.no_latency else (20_000, 8.0),
        flush=arguments.flush,
        brokers=arguments.brokers,
    ):
        passed = passed and result["passed"]
        text = msgspec.json.encode(result).decode() if arguments.json else row(result)
        print(text, flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
