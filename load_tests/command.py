"""`waylog load`: load tests of the platform that account for every fix."""

from __future__ import annotations

import argparse
import math
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waylog.cli import CommandError
from waylog.config import ConfigError, parse_endpoint

if TYPE_CHECKING:
    from load_tests.outcome import Outcome
    from load_tests.processor_time import Process, Sampler
    from load_tests.verify import Verdict

#: By protocol: the Locust user, and the maximum of devices per process. An MQTT device is a socket,
#: of which a process can usually have 20,000; an HTTP device is a greenlet.
_USERS: Final = {
    "mqtt": ("FleetUser", 15_000),
    "http": ("HttpPhone", 2_000),
    "batch": ("HttpBatch", 2_000),
}
_CONNECT_AND_DRAIN_S: Final = 300.0
_GATEWAY_CONNECTIONS: Final = 15_000
_EPILOG: Final = """\
examples:
  waylog load --users 5000 --rate 1000 --duration 30
  waylog load --users 100000 --rate 20000 --duration 60 --report load-report
  waylog load --protocol batch --users 500 --rate 5000 --duration 20 --json
  waylog load --mqtt 127.0.0.1:1883 --bootstrap-servers 127.0.0.1:9092 --token-file demo.token \\
      --user demo

Without an address a platform is started for the test, in a temporary folder, and stopped after it.
Latencies count from the moment a fix was due. Exit status 1 when an acknowledged fix is lost or
doubled, or a device did not get the address of its newest fix.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog load`."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--users", type=_count, default=1000, metavar="N", help="devices (default: 1000)")
    add("--rate", type=_positive, default=200.0, metavar="R", help="fixes a second of all of them")
    add("--duration", type=_positive, default=30.0, metavar="S", help="seconds (default: 30)")
    add("--protocol", choices=sorted(_USERS), default="mqtt", help="default: mqtt")
    own = parser.add_argument_group("a platform of its own")
    own.add_argument("--brokers", type=_count, default=1, metavar="N")
    own.add_argument(
        "--gateway-workers", type=_count, metavar="N", help="default: one for 15,000 devices"
    )
    own.add_argument("--resolvers", type=_count, default=1, metavar="N")
    own.add_argument("--history", action="store_true", help="with the Spark job that keeps history")
    own.add_argument("--keep", type=Path, metavar="DIR", help="keep its data and logs in DIR")
    existing = parser.add_argument_group("a platform that runs already")
    existing.add_argument("--gateway", metavar="URL")
    existing.add_argument("--mqtt", metavar="H:P")
    existing.add_argument("--bootstrap-servers", metavar="LIST")
    existing.add_argument("--user", default="load", help="owner of the devices (default: load)")
    existing.add_argument("--token-file", type=Path, metavar="F", help="that user's token")
    add("--report", type=Path, metavar="DIR", help="write report.html and the figures to DIR")
    add("--json", action="store_true", help="the last line is the result as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run the test; return 1 when the account does not balance."""
    _check(arguments)
    with ExitStack() as stack:
        target = stack.enter_context(_target(arguments))
        out = arguments.report or Path(tempfile.mkdtemp(prefix="waylog-load-out-"))
        if arguments.report is None:
            stack.callback(shutil.rmtree, out, ignore_errors=True)
        result = _measure(arguments, target, out)
    _say(arguments, _summary(result))
    if arguments.json:
        import msgspec

        print(msgspec.json.encode(result).decode(), flush=True)
    return 0 if result["passed"] else 1


class _Target(NamedTuple):
    """The addresses of the platform."""

    gateway: str
    mqtt: str
    bootstrap_servers: str
    supervisor: int | None  # process of a platform that was started for the test


def _check(arguments: argparse.Namespace) -> None:
    if arguments.protocol != "batch" and arguments.rate * arguments.duration < 1:
        raise ConfigError("--rate and --duration leave not a single fix to send")
    named = arguments.gateway or arguments.mqtt
    if bool(named) != bool(arguments.bootstrap_servers):
        raise ConfigError(
            "for a platform that runs already give --bootstrap-servers and --mqtt or --gateway"
        )
    if named and arguments.protocol == "mqtt" and not arguments.mqtt:
        raise ConfigError("--protocol mqtt needs --mqtt")
    if named and arguments.protocol != "mqtt" and not arguments.gateway:
        raise ConfigError(f"--protocol {arguments.protocol} needs --gateway")
    if arguments.mqtt:
        parse_endpoint(arguments.mqtt)
    if arguments.token_file:
        _token(arguments.token_file)


def _token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"--token-file {path}: {reason}") from error


@contextmanager
def _target(arguments: argparse.Namespace) -> Iterator[_Target]:
    if arguments.bootstrap_servers:
        gateway = arguments.gateway or ""
        if gateway and "://" not in gateway:
            gateway = f"http://{gateway}"
        yield _Target(gateway, arguments.mqtt or "", arguments.bootstrap_servers, None)
        return
    from load_tests.own_platform import OwnPlatform

    workers = arguments.gateway_workers or math.ceil(arguments.users / _GATEWAY_CONNECTIONS)
    _say(arguments, "starting a platform for the test")
    with OwnPlatform(
        brokers=arguments.brokers,
        gateway_workers=workers,
        resolvers=arguments.resolvers,
        history=arguments.history,
        keep=arguments.keep,
    ) as own:
        yield _Target(f"http://{own.http}", own.mqtt, own.bootstrap_servers, own.pid)


def _measure(arguments: argparse.Namespace, target: _Target, out: Path) -> dict[str, Any]:
    from load_tests.account import read_accounts
    from load_tests.outcome import read_outcomes
    from load_tests.processor_time import Sampler
    from load_tests.verify import Log, verify
    from waylog.kafka.clients import LogUnreachable

    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("account-*.msgpack"), *out.glob("outcome-*.json")):
        old.unlink()
    log = Log(target.bootstrap_servers)
    try:
        starts = log.ends()
        generators: list[subprocess.Popen[bytes]] = []
        with Sampler(lambda processes: _parts(target, generators, processes)) as sampler:
            try:
                _generate(arguments, target, out, generators)
            finally:
                for generator in generators:
                    if generator.poll() is None:
                        generator.terminate()
                        generator.wait()
        outcome = read_outcomes(sorted(out.glob("outcome-*.json")))
        account = read_accounts(sorted(out.glob("account-*.msgpack")))
        _say(arguments, "comparing the account with the log")
        verdict = verify(log, account, starts)
    except (LogUnreachable, ValueError) as error:
        raise CommandError(str(error)) from error
    finally:
        log.close()
    result = _result(arguments, outcome, verdict, sampler)
    if arguments.report is not None:
        from load_tests.report import write_report

        path = write_report(arguments.report, result, outcome, sampler.samples)
        _say(arguments, f"report: {path}")
    return result


def _generate(
    arguments: argparse.Namespace,
    target: _Target,
    out: Path,
    generators: list[subprocess.Popen[bytes]],
) -> None:
    """Run Locust in as many processes as the devices need."""
    from load_tests.own_platform import environment

    user, devices_max = _USERS[arguments.protocol]
    processes = math.ceil(arguments.users / devices_max)
    run_id = secrets.token_hex(4)
    token = _token(arguments.token_file) if arguments.token_file else ""
    share, rest = divmod(arguments.users, processes)
    first = 0
    for index in range(processes):
        devices = share + (index < rest)
        users = 1 if user == "FleetUser" else devices
        words = [
            *("-f", str(Path(__file__).with_name("locustfile.py")), user, "--headless"),
            *("--users", str(users), "--spawn-rate", str(users), "--only-summary"),
            *("--loglevel", "WARNING", "--exit-code-on-error", "0"),
            *("--devices", str(devices), "--first-device", str(first)),
            *("--interval", repr(arguments.users / arguments.rate)),
            *("--duration", repr(arguments.duration), "--device-user", arguments.user),
            *("--run-id", run_id, "--out", str(out), "--index", str(index)),
            *(("--mqtt", target.mqtt) if target.mqtt else ()),
            *(("--gateway", target.gateway) if target.gateway else ()),
        ]
        with (out / f"locust-{index}.log").open("wb") as log:
            generators.append(
                subprocess.Popen(
                    [sys.executable, "-m", "locust", *words],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Not as an argument, because every user of the machine can read command lines.
                    env=environment() | ({"WAYLOG_TOKEN": token} if token else {}),
                )
            )
        first += devices
    _say(
        arguments,
        f"{arguments.users} devices, {arguments.rate:g} fixes/s for {arguments.duration:g} s",
    )
    _wait(arguments, generators)
    for index, generator in enumerate(generators):
        if generator.returncode != 0 or not (out / f"outcome-{index}.json").exists():
            text = (out / f"locust-{index}.log").read_text(errors="replace").strip()
            lines = "\n  ".join(text.splitlines()[-12:])
            raise CommandError(f"load generator {index} failed:\n  {lines}")


def _wait(arguments: argparse.Namespace, generators: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + arguments.duration + _CONNECT_AND_DRAIN_S
    with _progress(arguments.duration) as show:
        began = time.monotonic()
        while any(generator.poll() is None for generator in generators):
            if time.monotonic() > deadline:
                raise CommandError("the load generator does not come to an end")
            show(time.monotonic() - began)
            time.sleep(0.2)


@contextmanager
def _progress(total_s: float) -> Iterator[Any]:
    if not sys.stderr.isatty():
        yield lambda seconds: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    with Progress(
        TextColumn("sending"), BarColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task("sending", total=total_s)
        yield lambda seconds: progress.update(task, completed=min(seconds, total_s))


def _parts(
    target: _Target, generators: list[subprocess.Popen[bytes]], processes: dict[int, Process]
) -> dict[int, str]:
    from load_tests.processor_time import LOAD, parts_below, parts_of_platform

    if target.supervisor is not None:
        parts = parts_below(target.supervisor, processes)
    else:
        parts = parts_of_platform(target.bootstrap_servers, processes)
    return parts | {generator.pid: LOAD for generator in list(generators)}


def _result(
    arguments: argparse.Namespace, outcome: Outcome, verdict: Verdict, sampler: Sampler
) -> dict[str, Any]:
    from load_tests.latency import percentile_ms

    acknowledgements, pushes = outcome.acknowledgements, outcome.push_latencies
    # Processing of the last fixes continues for a moment after they were due.
    used = sampler.used(outcome.began, outcome.ended + 1.0)
    per_fix = {
        part: round(seconds * 1e6 / max(1, outcome.acknowledged), 2)
        for part, seconds in sorted(used.items())
    }
    seconds = max(1e-3, outcome.ended - outcome.began)
    return {
        "protocol": arguments.protocol,
        "devices": outcome.devices,
        "seconds": round(seconds, 3),
        "sent": outcome.sent,
        "acknowledged": outcome.acknowledged,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "rate": round(outcome.acknowledged / seconds, 1),
        "ack_p50_ms": percentile_ms(acknowledgements, 50),
        "ack_p99_ms": percentile_ms(acknowledgements, 99),
        "ack_max_ms": percentile_ms(acknowledgements, 100),
        "push_p50_ms": percentile_ms(pushes, 50),
        "push_p99_ms": percentile_ms(pushes, 99),
        "pushes": outcome.pushes,
        "cpu_us_per_fix": per_fix,
        "due": outcome.due,
        "late": outcome.late,
        "resent": outcome.resent,
        "failures": outcome.failures,
        "disconnects": outcome.disconnects,
        "stored": verdict.stored,
        "unacknowledged": verdict.unacknowledged,
        "unknown": verdict.unknown,
        "addresses": verdict.addresses,
        "stale_addresses": verdict.stale,
        "unresolved": verdict.unresolved,
        "examples": verdict.examples,
        "passed": verdict.passed and outcome.acknowledged > 0,
    }


def _summary(result: dict[str, Any]) -> str:
    def ms(name: str) -> str:
        value = result[name]
        return "-" if value is None else f"{value:.1f}"

    cpu = ", ".join(f"{part} {value:g}" for part, value in result["cpu_us_per_fix"].items())
    lines = [
        f"{result['acknowledged']} of {result['sent']} fixes acknowledged, "
        f"{result['rate']:g}/s, {result['lost']} lost, {result['doubled']} doubled",
        f"acknowledgement p50 {ms('ack_p50_ms')} ms, p99 {ms('ack_p99_ms')} ms; "
        f"address p50 {ms('push_p50_ms')} ms, p99 {ms('push_p99_ms')} ms",
        f"newest address right for {result['addresses']} devices, "
        f"old for {result['stale_addresses']}, missing for {result['unresolved']}",
        f"{result['late']} sent late, {result['resent']} sent again, "
        f"{result['disconnects']} connections lost, {result['failures']} failures",
        f"processor time per fix in us: {cpu}",
    ]
    if result["examples"]:
        lines.append(f"for example: {', '.join(result['examples'])}")
    return "\n".join(lines)


def _say(arguments: argparse.Namespace, text: str) -> None:
    """Print a message for people: on standard output, unless that is for a program."""
    print(text, file=sys.stderr if arguments.json else sys.stdout, flush=True)


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value
