"""`waylog log`: checks the files of a broker's logs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from broker_core.environment import Disk, SystemDisk
from broker_core.log.verification import (
    Damage,
    Verified,
    log_bytes,
    log_directories,
    verify_log,
)
from broker_core.server.partitions.inventory import INVENTORY_FILE, PartitionInventory
from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.config import DataDirectory

_EXAMPLES: Final = """examples:
  waylog log verify                                the logs of the platform in ./data
  waylog log verify --data /srv/kafka-logs         log.dirs of a broker
  waylog log verify --topic location --json

Nothing is changed, and the broker may run. The exit status is 1 if something is damaged or missing.
An incomplete batch at a log's end is named and not counted: it is being written, or was when the
broker was killed, and the next start cuts it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action `verify`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verify = actions.add_parser(
        "verify",
        help="read every segment and check the CRC of every batch",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verify.add_argument(
        "--data",
        type=Path,
        default=DataDirectory.default().root,
        metavar="DIR",
        help="the platform's folder, or any folder with logs below it (default %(default)s)",
    )
    verify.add_argument(
        "--topic", action="append", metavar="NAME", help="only this one; may be given several times"
    )
    verify.add_argument("--json", action="store_true", help="one JSON object a partition")


def run(arguments: argparse.Namespace) -> int:
    """Check the logs; return 1 if something is wrong with one."""
    disk = SystemDisk()
    wanted = partial(_is_of, arguments.topic)
    found = list(filter(wanted, log_directories(arguments.data)))
    missing = [each for each in _missing(arguments.data, disk) if wanted(each.directory)]
    if not found and not missing:
        what = f" of {', '.join(arguments.topic)}" if arguments.topic else ""
        raise CommandError(f"there are no logs{what} in {arguments.data}; --data names the folder")
    outcomes = list(missing)
    for each in missing:
        _tell(each, as_json=arguments.json)
    with _progress(sum(log_bytes(disk, each) for each in found)) as progress:
        for directory in found:
            outcome = verify_log(disk, directory, progress)
            if outcome is not None:
                outcomes.append(outcome)
                _tell(outcome, as_json=arguments.json)
    damaged = [each for each in outcomes if any(not one.harmless for one in each.damage)]
    if not arguments.json:
        print(
            f"{len(outcomes)} logs, {sum(each.segments for each in outcomes)} segments, "
            f"{sum(each.batches for each in outcomes):,} batches, "
            f"{sum(each.bytes for each in outcomes):,} bytes: "
            + (f"{len(damaged)} logs are damaged" if damaged else "all sound")
        )
    return EXIT_FAILED if damaged else EXIT_DONE


def _is_of(topics: list[str] | None, directory: Path) -> bool:
    return not topics or directory.name.rpartition("-")[0] in topics


def _missing(folder: Path, disk: Disk) -> list[Verified]:
    """Return the logs that were in a folder, or below it, and are gone."""
    outcomes = []
    for path in sorted(folder.rglob(INVENTORY_FILE)):
        inventory = PartitionInventory(path.parent, disk)
        if inventory.problem is not None:
            damage = Damage(path, None, inventory.problem)
            outcomes.append(Verified(path.parent, damage=(damage,)))
        for directory in inventory.missing():
            # What is being deleted leaves the inventory first.
            if PartitionInventory(path.parent, disk).topic_id(directory.name) is not None:
                damage = Damage(directory, None, "the log was here, and is gone")
                outcomes.append(Verified(directory, damage=(damage,)))
    return outcomes


def _tell(outcome: Verified, *, as_json: bool) -> None:
    if as_json:
        damage = [
            {
                "file": str(each.file),
                "position": each.position,
                "problem": each.problem,
                "harmless": each.harmless,
            }
            for each in outcome.damage
        ]
        told = {
            "log": str(outcome.directory),
            "segments": outcome.segments,
            "batches": outcome.batches,
            "bytes": outcome.bytes,
            "damage": damage,
        }
        print(json.dumps(told))
        return
    for each in outcome.damage:
        where = f"{each.file}" if each.position is None else f"{each.file}, byte {each.position}"
        note = " (the log's end: harmless)" if each.harmless else ""
        print(f"{where}: {each.problem}{note}")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _bytes: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("verifying", total=total)
        yield lambda count: progress.advance(task, count)
