"""`waylog replay`: sends recorded tracks as devices would."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from waylog.cli import CommandError
from waylog.config import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_HTTP,
    DEFAULT_MQTT,
    ConfigError,
    DataDirectory,
    parse_endpoint,
)
from waylog.replay.target import gateway_url, reach_target

DEMO_USER: Final = "demo"
_FORMATS: Final = {
    "http": ("positions", "owntracks", "overland", "osmand"),
    "mqtt": ("owntracks", "positions"),
    "kafka": ("positions",),
}
_EPILOG: Final = """\
examples:
  waylog replay walk.gpx
  waylog replay --speed 60 --via mqtt ride.gpx.gz commute.kmz
  waylog replay --user mika --token-file mika.token --format overland Records.json
  waylog replay --via kafka --limit 100000 geolife.csv.gz
  waylog replay --user mika --token-file mika.token --device watch strava_export.zip Pictures

Files are told apart by their content: GPX, KML and KMZ, TCX, FIT, GeoJSON, CSV with a header, NMEA
0183, Google Timeline (Records, Semantic Location History, exports of Android and iOS), OwnTracks
.rec, Overland, photos with a place in their EXIF; plain or gzip, in any encoding of Unicode. Of
folders and zip archives (Strava, Garmin, Polarsteps, Google Takeout) all tracks are sent, as one
device unless they say otherwise. Fixes are sent in the order of their time and sent again until
acknowledged; what is in the platform already is acknowledged, and not stored twice.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog replay`."""
    parser.epilog = _EPILOG
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--speed",
        type=_positive,
        metavar="X",
        help="as recorded, but X times as fast (default: as fast as it is acknowledged)",
    )
    parser.add_argument(
        "--gap-max",
        type=_positive,
        metavar="S",
        help="with --speed: never wait longer than S seconds for the next fix",
    )
    parser.add_argument("--via", choices=sorted(_FORMATS), default="http", help="default: http")
    parser.add_argument(
        "--format",
        choices=sorted(set(_FORMATS["http"])),
        help="which app to send like (default: positions over HTTP, owntracks over MQTT)",
    )
    parser.add_argument("--user", default=DEMO_USER, metavar="U", help="default: demo")
    secret = parser.add_mutually_exclusive_group()
    secret.add_argument("--token", metavar="T", help="the user's token or password")
    secret.add_argument("--token-file", type=Path, metavar="F", help="a file that holds it")
    parser.add_argument(
        "--device",
        metavar="D",
        help="default: what the file says, else its name, or that of its archive",
    )
    parser.add_argument("--limit", type=_count, metavar="N", help="the first N fixes of the files")
    parser.add_argument("--gateway", metavar="URL", default=f"http://{DEFAULT_HTTP}")
    parser.add_argument("--mqtt", metavar="H:P", default=DEFAULT_MQTT)
    parser.add_argument("--bootstrap-servers", metavar="LIST", default=DEFAULT_BOOTSTRAP_SERVERS)
    parser.add_argument(
        "--patience",
        type=_positive,
        default=300.0,
        metavar="S",
        help="give up after S seconds without any answer (default: 300)",
    )
    parser.add_argument(
        "--acknowledged",
        type=Path,
        metavar="FILE",
        help="write a line of JSON for each acknowledged fix: device, time, lat, lon, id",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Send the files; return 0 if everything was acknowledged."""
    from waylog.replay.player import read_files
    from waylog.replay.readers.recorded import Skipped
    from waylog.replay.senders.tally import Tally
    from waylog.replay.timeline import Timeline

    wire_format = arguments.format or _FORMATS[arguments.via][0]
    if wire_format not in _FORMATS[arguments.via]:
        raise ConfigError(
            f"--format {wire_format} can't go --via {arguments.via}, "
            f"only {' or '.join(_FORMATS[arguments.via])}"
        )
    user = _user(arguments.user)
    _check_files(arguments.files)
    _token(arguments)
    skipped: Skipped = Skipped()
    damage: list[str] = []
    started = time.monotonic()
    tally = Tally(arguments.acknowledged)
    try:
        fixes = read_files(
            arguments.files,
            device=arguments.device,
            limit=arguments.limit,
            skipped=skipped,
            user=user,
            damage=damage,
        )
        # Without --speed the recorded gaps do not matter, so that devices that were recorded years
        # apart are sent side by side.
        with Timeline(fixes, together=arguments.speed is None) as timeline:
            if timeline.count:
                reach_target(arguments)
            asyncio.run(_replay(arguments, user, wire_format, tally, timeline))
    finally:
        tally.close()
    seconds = round(time.monotonic() - started, 3)
    counted = {reason: count for reason, count in skipped.items() if count}
    summary = {**tally.summary(), "skipped": counted, "seconds": seconds}
    _report(summary, as_json=arguments.json)
    for reason in damage:
        print(f"waylog replay: {reason}", file=sys.stderr)
    return 0 if tally.acknowledged == tally.sent > 0 and not damage else 1


async def _replay(
    arguments: argparse.Namespace, user: str, wire_format: str, tally: Any, timeline: Any
) -> None:
    from waylog.replay.player import play

    sender = _sender(arguments, user, wire_format, tally)
    failure: CommandError | None = None
    try:
        with _progress(timeline.count, tally) as advance:
            fixes = play(
                timeline,
                user=user,
                wire_format=wire_format,
                speed=arguments.speed,
                gap_max_s=arguments.gap_max,
                on_played=advance,
            )
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(tally.watch(arguments.patience))
                await sender.run(fixes)
                watch.cancel()
    except* CommandError as group:
        failure = _first(group)  # raised here it would be wrapped in a group on some Pythons
    if failure is not None:
        raise failure


def _sender(arguments: argparse.Namespace, user: str, wire_format: str, tally: Any) -> Any:
    if arguments.via == "kafka":
        from waylog.replay.senders.kafka import KafkaSender

        return KafkaSender(arguments.bootstrap_servers, tally)
    token = _token(arguments)
    if arguments.via == "mqtt":
        from waylog.replay.senders.mqtt import MqttSender

        return MqttSender(parse_endpoint(arguments.mqtt), user, token, wire_format, tally)
    from waylog.replay.senders.http import HttpSender

    return HttpSender(gateway_url(arguments.gateway), user, token, wire_format, tally)


def _token(arguments: argparse.Namespace) -> str | None:
    if arguments.token is not None:
        return str(arguments.token)
    path: Path | None = arguments.token_file
    if path is None and arguments.user == DEMO_USER:
        path = DataDirectory.default().demo_token
        if not path.exists():
            return None
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error


@contextmanager
def _progress(total: int, tally: Any) -> Iterator[Any]:
    """Show a bar on a terminal; yield the function to call for each fix that is sent."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("sending"), BarColumn(), MofNCompleteColumn(), Remaining())
    trouble = TextColumn("[yellow]{task.fields[trouble]}")
    with Progress(*columns, trouble, console=Console(stderr=True)) as progress:
        task = progress.add_task("sending", total=total, trouble="")
        shown = [0]

        def advance() -> None:
            shown[0] += 1
            if shown[0] % 100 == 0 or total < 1000:
                progress.update(task, completed=tally.acknowledged, trouble=tally.trouble or "")

        yield advance
        progress.update(task, completed=tally.acknowledged, trouble="")


def _report(summary: dict[str, Any], *, as_json: bool) -> None:
    import msgspec

    if as_json:
        print(msgspec.json.encode(summary).decode())
        return
    print(
        f"{summary['acknowledged']} of {summary['sent']} fixes of {summary['devices']} device(s) "
        f"acknowledged in {summary['seconds']:.1f} s"
        + (f", {summary['retries']} sent again" if summary["retries"] else "")
        + (f", {summary['rejected']} refused" if summary["rejected"] else "")
    )
    for reason, count in sorted(summary["skipped"].items()):
        print(f"{count} left out: {reason}", file=sys.stderr)
    if not summary["sent"]:
        print("no fix with a place and a time was found", file=sys.stderr)


def _first(group: BaseExceptionGroup[BaseException]) -> CommandError:
    for each in group.exceptions:
        found = _first(each) if isinstance(each, BaseExceptionGroup) else each
        if isinstance(found, CommandError):
            return found
    raise AssertionError("a group of CommandErrors holds one") from group


def _user(text: str) -> str:
    if not text or any(character in text for character in "/+#\0"):
        raise ConfigError(f"--user {text!r}: a user's name has no /, + or #")
    return text


def _check_files(paths: list[Path]) -> None:
    for path in paths:
        try:
            if path.is_dir():
                os.scandir(path).close()
            else:
                path.open("rb").close()
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}") from None


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a number") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)
