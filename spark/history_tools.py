"""What `waylog history` does with a history that is there: compact and list."""

from __future__ import annotations

import argparse
import logging
from contextlib import ExitStack
from datetime import UTC, datetime

import msgspec

from waylog.cli import CommandError
from waylog.history_reader import HistoryReader

logger = logging.getLogger("spark.history")


def compact(arguments: argparse.Namespace) -> int:
    """Pack days; each counts as soon as it is ready."""
    from spark.compaction import compact_date, plan_date
    from spark.history_manifest import ManifestWriter, needs_compaction
    from spark.tasks import open_engine
    from waylog.telemetry import configure_logging

    configure_logging()
    if arguments.before is not None:
        _check_date(arguments.before)
    before = "9999-99-99" if arguments.all else arguments.before or f"{datetime.now(UTC):%Y-%m-%d}"
    reader = open_history(arguments.out)
    manifest = ManifestWriter(arguments.out)
    with ExitStack() as stack:
        stack.callback(manifest.close)
        reader.refresh()
        dates = needs_compaction(reader, before)
        engine = open_engine(arguments, stack, "waylog compact") if dates else None
        workers = arguments.workers if arguments.engine == "arrow" else 8
        for start in range(0, len(dates), workers):
            assert engine is not None
            tasks = [plan_date(reader, date) for date in dates[start : start + workers]]
            results = engine.run(compact_date, tasks)
            manifest.commit(results)
            for result in results:
                after = sum(file.bytes for file in result.compacted.files)
                rows = sum(file.rows for file in result.compacted.files)
                logger.info(
                    "%s: %d fixes, %d files of %d bytes into %d of %d, %.1f bytes a fix",
                    *(result.date, rows, len(result.sources), result.bytes_before),
                    *(len(result.compacted.files), after, after / max(1, rows)),
                )
                if arguments.json:
                    line = {
                        "date": result.date,
                        "rows": rows,
                        "files_before": len(result.sources),
                        "bytes_before": result.bytes_before,
                        "files": len(result.compacted.files),
                        "bytes": after,
                    }
                    print(msgspec.json.encode(line).decode())
        manifest.delete_superseded(arguments.grace)
    return 0


def files(arguments: argparse.Namespace) -> int:
    """List the files that count."""
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


def open_history(url: str) -> HistoryReader:
    """A history that has something; raises CommandError for any other."""
    reader = HistoryReader(url)
    if not reader.files():
        raise CommandError(f"{url}: there is no history; `waylog history run` writes it")
    return reader


def _check_date(text: str) -> None:
    try:
        datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise CommandError(f"{text}: a date is YYYY-MM-DD") from None
