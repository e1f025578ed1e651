"""The actions of `waylog history` on an existing history: compact, list, publish, export, erase."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from spark.fixes.begun_history import has_begun, open_history
from spark.history.chosen_devices import Chosen, chosen_devices
from spark.history.export_file import export_file
from waylog.cli import CommandError
from waylog.config import ConfigError
from waylog.history.history_reader import HistoryReader, HistoryUnreadable
from waylog.os_errors import describe_os_error
from waylog.process.storage_trouble import is_disk_full

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark.history.compaction import CompactionResult
    from spark.history.erase import ErasureReport
    from spark.history.manifest import ManifestWriter
    from spark.runtime.tasks import Engine

logger = logging.getLogger("spark.history")


def compact(arguments: argparse.Namespace) -> int:
    """Compact days, then months; each becomes current as soon as it is finished."""
    from spark.history.compaction import FILE_BYTES
    from spark.history.manifest import (
        ManifestWriter,
        many_small_files,
        months_to_pack,
        needs_compaction,
        outdated,
        settled,
    )
    from waylog.observability.log_lines import configure_logging

    configure_logging()
    if arguments.before is not None:
        _check_date(arguments.before)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    before = "9999-99-99" if arguments.all else arguments.before or today
    reader = open_history(arguments.out)
    manifest = ManifestWriter(arguments.out)
    with ExitStack() as stack:
        stack.callback(manifest.close)
        reader.refresh()
        packing = _Packing(arguments, stack, reader, manifest)
        # Whatever their date: until then, programs that read the folder find two layouts.
        packing.run(outdated(reader))
        reader.refresh()
        settled_s = time.time() - 3600 * arguments.settled
        packing.run(settled(reader, needs_compaction(reader, before), settled_s))
        if arguments.files_max is not None:
            packing.run(many_small_files(reader, before, arguments.files_max))
        if not arguments.keep_days:
            reader.refresh()
            months = months_to_pack(reader, min(before, today), FILE_BYTES)
            packing.run(settled(reader, months, settled_s))
        manifest.delete_superseded(arguments.grace)
    return 0


class _Packing:
    """A helper that compacts periods and reports the results."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        stack: ExitStack,
        reader: HistoryReader,
        manifest: ManifestWriter,
    ) -> None:
        self._arguments = arguments
        self._stack = stack
        self._reader = reader
        self._manifest = manifest
        self._engine: Engine | None = None

    def run(self, periods: Sequence[str]) -> None:
        from spark.history.compaction import compact_period, plan_period
        from spark.runtime.tasks import open_engine

        workers = self._arguments.workers if self._arguments.engine == "arrow" else 8
        for start in range(0, len(periods), workers):
            if self._engine is None:
                self._engine = open_engine(self._arguments, self._stack, "waylog compact")
            tasks = [plan_period(self._reader, each) for each in periods[start : start + workers]]
            results = self._engine.run(compact_period, tasks)
            self._manifest.commit(results)
            keep_published(self._reader)
            if not self._arguments.grace:
                # Until then, readers that list folders see these fixes twice.
                self._manifest.delete_superseded()
            for result in results:
                self._tell(result)

    def _tell(self, result: CompactionResult) -> None:
        after = sum(file.bytes for file in result.compacted.files)
        rows = sum(file.rows for file in result.compacted.files)
        logger.info(
            "%s: %d fixes, %d files of %d bytes into %d of %d, %.1f bytes a fix",
            *(result.period, rows, len(result.sources), result.bytes_before),
            *(len(result.compacted.files), after, after / max(1, rows)),
        )
        if self._arguments.json:
            line = {
                "date": result.period,
                "rows": rows,
                "files_before": len(result.sources),
                "bytes_before": result.bytes_before,
                "files": len(result.compacted.files),
                "bytes": after,
            }
            print(msgspec.json.encode(line).decode())


def publish(arguments: argparse.Namespace) -> int:
    """Write the current files to the Delta table as a new version."""
    from spark.history.delta_table import publish as publish_table

    published = publish_table(open_history(arguments.out))
    if arguments.json:
        print(msgspec.json.encode(published._asdict()).decode())
    else:
        print(
            f"version {published.version}: {published.files} files, {published.added} added, "
            f"{published.removed} removed"
        )
    return 0


def keep_published(reader: HistoryReader) -> None:
    """Update the Delta table, if there is one, before files that it names are deleted."""
    from spark.history.delta_table import is_published
    from spark.history.delta_table import publish as publish_table
    from spark.history.manifest import outdated

    if not is_published(reader):
        return
    reader.refresh()
    if outdated(reader):
        logger.warning("the Delta table is updated when all files of an earlier version are packed")
    else:
        publish_table(reader)


def files(arguments: argparse.Namespace) -> int:
    """List the current files."""
    if arguments.date is not None:
        _check_date(arguments.date)
    reader = open_history(arguments.out)
    base = reader.storage.path if reader.storage.local else reader.storage.url
    for file in reader.files(arguments.date):
        path = f"{base.rstrip('/')}/{file.path}"
        if arguments.json:
            line = {"path": path, "date": file.date, "compacted": file.span is None}
            print(msgspec.json.encode(line | {"bytes": file.bytes}).decode())
        else:
            print(path)
    return 0


def export(arguments: argparse.Namespace) -> int:
    """Write all fixes of some devices to a file."""
    from rich.console import Console
    from rich.progress import Progress

    from spark.history.export import export as export_tracks
    from waylog.history.device_rows import rows_by_device
    from waylog.history.track_writers import WRITERS

    from_ms, to_ms = _time_ms(arguments.from_time, -(2**62)), _time_ms(arguments.to_time, 2**62)
    if from_ms > to_ms:
        raise ConfigError(f"--from {arguments.from_time} is later than --to {arguments.to_time}")
    chosen = chosen_devices(arguments.user, arguments.device)
    if not chosen.devices and not chosen.users:
        raise CommandError("nothing to export, name a --device")
    reader = open_history(arguments.out)
    rows = rows_by_device(reader, dict.fromkeys(chosen.devices), set(chosen.users))
    unknown = [each for each in chosen.devices if each not in rows]
    if unknown or not rows:
        who = ", ".join(unknown) or f"of {', '.join(chosen.users)}"
        raise CommandError(f"nothing is exported: the history knows no device {who}")
    with ExitStack() as stack:
        stream = stack.enter_context(_output(arguments.file))
        progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        task = progress.add_task("exporting", total=sum(rows.values()))
        writer = WRITERS[arguments.format](stream)
        count, with_fixes = export_tracks(
            reader,
            rows,
            writer,
            from_ms,
            to_ms,
            advance=lambda done: progress.advance(task, done),
        )
    print(f"{count} fixes of {with_fixes} device{'' if with_fixes == 1 else 's'}", file=sys.stderr)
    return 0


@contextmanager
def _output(name: str | None) -> Iterator[IO[bytes]]:
    """Give what to write into; a file gets its name when it is complete."""
    if name is None:
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except OSError as error:
            if error.filename is None and is_disk_full(error):
                raise OSError(error.errno, error.strerror, "standard output") from error
            raise
        return
    with export_file(Path(name).resolve()) as stream:
        yield stream


def erase(arguments: argparse.Namespace) -> int:
    """Erase devices, and report what remains."""
    from spark.history.erase import (
        ErasureReport,
        erase_history,
        erase_places,
        erase_topics,
        mark_erased,
    )
    from waylog.kafka.clients import LogUnreachable
    from waylog.kafka.reach import connect_admin

    chosen = chosen_devices(arguments.user, arguments.device)
    servers = arguments.bootstrap_servers
    history = HistoryReader(arguments.out)
    if not servers and not has_begun(history):
        raise CommandError(
            f"{arguments.out}: there is no history; name the log as well, by --bootstrap-servers"
        )
    started = time.monotonic()
    begun = False
    try:
        if servers:
            connect_admin(servers)
        devices = _devices_to_erase(chosen, servers, history)
        if not arguments.yes:
            raise CommandError(
                f"this can not be undone: {', '.join(devices or chosen.users)}; "
                "revoke the user first (`waylog user revoke`), then say --yes"
            )
        report = ErasureReport(devices, time.time_ns() // 1_000_000, chosen.users)
        begun = True
        # Before topic `erasure` has it: a running history job then leaves the rewriting to this
        # process.
        history.refresh()
        report.history = has_begun(history)
        if report.history:
            mark_erased(arguments.out, report.before)
        if servers:
            erase_topics(servers, report, arguments.patience)
        if report.history:
            erase_history(arguments.out, report.before, report)
            keep_published(history)
        report.places = erase_places(arguments.out, arguments.places, devices)
    except (LogUnreachable, HistoryUnreadable, OSError) as error:
        done = "not all is erased: say it again" if begun else "nothing was erased"
        told = describe_os_error(error) if isinstance(error, OSError) else str(error)
        raise CommandError(f"{told}; {done}") from error
    report.seconds = round(time.monotonic() - started, 3)
    _print_report(report, arguments)
    return 0


def _devices_to_erase(
    chosen: Chosen, bootstrap_servers: str | None, history: HistoryReader
) -> list[str]:
    """Return the devices to erase; raises CommandError and LogUnreachable."""
    from spark.history.erase import devices_in_log
    from waylog.history.device_rows import devices_of

    devices = dict.fromkeys(chosen.devices)
    for user in chosen.users:
        devices.update(dict.fromkeys(devices_of(history, user)))
        if bootstrap_servers:
            devices.update(dict.fromkeys(sorted(devices_in_log(bootstrap_servers, user))))
    if not devices and not (chosen.users and bootstrap_servers):
        raise CommandError("nothing to erase: name a --device, or a --user that the history knows")
    return list(devices)


def _print_report(report: ErasureReport, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(msgspec.json.encode(report).decode())
        return
    print(f"erased {', '.join(report.devices or report.users)} in {report.seconds:.1f} s:")
    if report.history:
        print(f"  history  {report.rows} fixes, {report.files_rewritten} files rewritten")
    else:
        print(f"  history  there is none at {arguments.out}")
    print(f"  places   {report.places}")
    for topic, count in report.tombstones.items():
        print(f"  topic {topic}: {count} tombstones; out of the log's files within a day")
    if report.answers:
        print("  topic geocoded: answers of the fallback geocoder, of everybody")
    if report.keys:
        gone = "gone from the log's files" if report.keys_gone else "gone when it is next compacted"
        print(f"  topic value-key: {report.keys} keys destroyed, {gone}")
    for kept in report.kept:
        until = "for ever" if kept.until is None else f"until {_moment(kept.until)}"
        print(f"  topic {kept.topic}: keeps records that were written by now {until}")
        if kept.unreadable_since is not None:
            since = f"{datetime.fromtimestamp(kept.unreadable_since / 1000, UTC):%Y-%m-%d %H:%M}"
            print(f"    of which nobody can read those since {since} UTC")
    if not arguments.bootstrap_servers:
        print("  the log was not looked at: no --bootstrap-servers")


def _moment(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC at the latest"


def _time_ms(text: str | None, default: int) -> int:
    if text is None:
        return default
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text}: a time is YYYY-MM-DD[THH:MM[:SS][+HH:MM]]") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _check_date(text: str) -> None:
    try:
        datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise CommandError(f"{text}: a date is YYYY-MM-DD") from None
