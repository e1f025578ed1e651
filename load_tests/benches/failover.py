"""Three brokers that are killed, stopped, frozen and restarted under load, beside Apache Kafka.

    python -m load_tests.benches.failover
        fifty kills of ours, six of Apache Kafka
    python -m load_tests.benches.failover --only rolling --alone
        ours restarted one after the other

Each record has a number: at the end all are read back, so that what was lost or doubled is known by
name. A partition is served again when it has acknowledged something that was sent after the event.
Clients try to connect again within half a second, not within ten as librdkafka does if it is not
told: a broker that was started a moment ago is to lead when the next one is killed.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from load_tests.benches.broker_processes import APACHE_KAFKA, WAYLOG, MeasuredBroker, default_jars
from load_tests.benches.numbered_load import TOPIC, NumberedLoad
from waylog.cli import CommandError

PARTITIONS: Final = 6
_BROKERS: Final = 3
_TIMEOUT_S: Final = 120.0
_SETTLE_S: Final = 1.0
_CLIENT: Final = {"reconnect.backoff.max.ms": 500}
#: A client of a frozen broker notices only that there is no answer, so its timeouts are short.
_IMPATIENT: Final = _CLIENT | {"socket.timeout.ms": 3000, "request.timeout.ms": 3000}

Event = Callable[[MeasuredBroker, NumberedLoad, int], float]


def create_topic(cluster: MeasuredBroker) -> None:
    """Create the topic of the numbered records, with a replica on all three brokers."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    topic = NewTopic(TOPIC, PARTITIONS, _BROKERS)
    admin.create_topics([topic])[TOPIC].result(_TIMEOUT_S)


def await_in_sync(cluster: MeasuredBroker) -> None:
    """Wait until every partition has all replicas in sync; raises CommandError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            found = admin.list_topics(timeout=5)
        except KafkaException:
            continue
        partitions = [each for topic in found.topics.values() for each in topic.partitions.values()]
        if len(found.brokers) == _BROKERS and all(
            len(each.isrs) == _BROKERS and each.leader >= 0 for each in partitions
        ):
            return
        time.sleep(0.05)
    raise CommandError(f"{cluster.name}: not all replicas come back in sync")


def _kill(cluster: MeasuredBroker, load: NumberedLoad, number: int) -> float:
    node = cluster.nodes[number % _BROKERS + 1]
    began = time.monotonic()
    node.send_signal(signal.SIGKILL)
    resumed_s = load.resumed_s(began)
    node.wait()
    node.start()
    node.wait_ready()
    return resumed_s


def _stop(cluster: MeasuredBroker, load: NumberedLoad, number: int) -> float:
    node = cluster.nodes[number % _BROKERS + 1]
    began = time.monotonic()
    node.send_signal(signal.SIGTERM)
    node.wait()
    load.resumed_s(time.monotonic())
    gap_s = load.longest_gap_s(began)
    node.start()
    node.wait_ready()
    return gap_s


def _freeze(cluster: MeasuredBroker, load: NumberedLoad, number: int) -> float:
    node = cluster.nodes[number % _BROKERS + 1]
    began = time.monotonic()
    node.send_signal(signal.SIGSTOP)
    resumed_s = load.resumed_s(began)
    time.sleep(2 * _SETTLE_S)
    node.send_signal(signal.SIGCONT)
    return resumed_s


def _events(
    cluster: MeasuredBroker, event: Event, times: int, rate: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Apply an event to one broker after the other, each time after all replicas are in sync."""
    found: list[float] = []
    with NumberedLoad(cluster.bootstrap_servers, PARTITIONS, rate, dict(settings)) as load:
        for number in range(times):
            await_in_sync(cluster)
            load.resumed_s(time.monotonic())
            time.sleep(_SETTLE_S)
            found.append(event(cluster, load, number))
        await_in_sync(cluster)
    return _account(load) | {
        "times": times,
        "median_s": round(statistics.median(found), 3),
        "worst_s": round(max(found), 3),
        "each_s": [round(each, 3) for each in found],
    }


def _rolling(cluster: MeasuredBroker, rate: int) -> dict[str, Any]:
    """Restart all three brokers in turn; measure the latency of acknowledgements meanwhile."""
    with NumberedLoad(cluster.bootstrap_servers, PARTITIONS, rate, dict(_CLIENT)) as load:
        await_in_sync(cluster)
        time.sleep(3 * _SETTLE_S)
        before = time.monotonic()
        time.sleep(3 * _SETTLE_S)
        began = time.monotonic()
        for node in cluster.nodes.values():
            node.send_signal(signal.SIGTERM)
            node.wait()
            node.start()
            node.wait_ready()
            await_in_sync(cluster)
        ended = time.monotonic()
        load.resumed_s(ended)
        latencies = load.latencies_s(began)
        quiet = load.latencies_s(before, began)
    return _account(load) | {
        "rate": rate,
        "took_s": round(ended - began, 1),
        "p50_ms": _percentile_ms(latencies, 0.5),
        "p99_ms": _percentile_ms(latencies, 0.99),
        "worst_ms": _percentile_ms(latencies, 1),
        "before_p50_ms": _percentile_ms(quiet, 0.5),
    }


def _percentile_ms(latencies: list[float], share: float) -> float:
    return round(latencies[min(int(len(latencies) * share), len(latencies) - 1)] * 1000, 1)


def _account(load: NumberedLoad) -> dict[str, Any]:
    account = load.account()
    return {
        "passed": account.is_whole and account.sent > 0,
        "sent": account.sent,
        "acknowledged": account.acknowledged,
        "refused": sum(account.refused.values()),
        "lost": len(account.lost),
        "doubled": len(account.doubled),
        "moved": len(account.moved),
    }


def measure(
    kind: str,
    *,
    jars: Path | None = None,
    times: int,
    rate: int,
    properties: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Measure `kill`, `stop`, `freeze` or `rolling`, on our brokers or on Apache Kafka's."""
    events: dict[str, Event] = {"kill": _kill, "stop": _stop, "freeze": _freeze}
    name = APACHE_KAFKA if jars else WAYLOG
    with (
        tempfile.TemporaryDirectory() as folder,
        MeasuredBroker(
            name, Path(folder) / "data", brokers=_BROKERS, jars=jars, properties=properties
        ) as cluster,
    ):
        create_topic(cluster)
        if kind == "rolling":
            found = _rolling(cluster, rate)
        else:
            settings = _IMPATIENT if kind == "freeze" else _CLIENT
            found = _events(cluster, events[kind], times, rate, settings)
    return {"broker": name, "kind": kind} | found


def row(result: dict[str, Any]) -> str:
    """Return a result as one line of text."""
    what = (
        f"{result['times']} times; median {result['median_s']:.2f} s, worst {result['worst_s']:.2f}"
        if "times" in result
        else f"{result['rate']}/s for {result['took_s']} s; acknowledged after p50 "
        f"{result['p50_ms']} ms, p99 {result['p99_ms']}, worst {result['worst_ms']} "
        f"(before p50 {result['before_p50_ms']})"
    )
    return (
        f"| {result['broker']}: {result['kind']} | {what} | {result['sent']} sent, "
        f"{result['refused']} refused, {result['lost']} lost, {result['doubled']} doubled |"
    )


def _wanted(arguments: argparse.Namespace) -> Iterator[tuple[str, Path | None, int]]:
    kinds = arguments.only or ["kill", "stop", "freeze", "rolling"]
    for kind in kinds:
        yield kind, None, arguments.times
        if arguments.jars is not None and not arguments.alone:
            yield kind, arguments.jars, min(arguments.times, arguments.kafka_times)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 1 when a record was lost, duplicated or refused."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=("kill", "stop", "freeze", "rolling"), action="append")
    parser.add_argument("--times", type=int, default=50, help="events of one kind")
    parser.add_argument("--kafka-times", type=int, default=6, help="the same of Apache Kafka")
    parser.add_argument("--rate", type=int, default=2_000, help="records a second")
    parser.add_argument("--rolling-rate", type=int, default=20_000, help="while restarting")
    parser.add_argument(
        "--jars", type=Path, default=default_jars(), metavar="FOLDER",
        help="Apache Kafka's jars (default: where `make test-kafka` keeps them)",
    )  # fmt: skip
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args(argv)
    passed = True
    for kind, jars, times in _wanted(arguments):
        rate = arguments.rolling_rate if kind == "rolling" else arguments.rate
        result = measure(kind, jars=jars, times=times, rate=rate)
        passed = passed and result["passed"]
        print(msgspec.json.encode(result).decode() if arguments.json else row(result), flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
