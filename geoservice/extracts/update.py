"""Updates of an extract with OpenStreetMap's change files.

The changes are merged with the extract into a new file, which then replaces the old one atomically.
The extract's header records which changes are included, so that an interrupted run can be repeated.
"""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import osmium
import requests
from osmium.replication.server import ReplicationServer

from geoservice.importer.replication import ReplicationState, read_state

logger = logging.getLogger(__name__)

#: Limit of the change files that are merged at a time, in kB: they are held in memory.
_BUFFER_KB_MAX: Final = 256 * 1024
_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


class UpdateFailed(Exception):
    """The extract could not be updated; the message says why. The extract is unchanged."""


def apply_files(extract: Path, changes: Sequence[Path]) -> ReplicationState:
    """Merge change files (.osc, .osc.gz) into an extract; raises UpdateFailed.

    The order of the files does not matter, because the newest version of each object wins. Changes
    outside the extract's region are merged too, so the files should be those of the same region.
    """
    state = _state(extract)
    newest = state.time
    merged = osmium.MergeInputReader()
    for path in changes:
        try:
            merged.add_file(str(path))
            time = _newest_change(path)
        except (RuntimeError, OSError, EOFError, gzip.BadGzipFile) as error:
            raise UpdateFailed(f"{path}: not a file of changes: {error}") from None
        newest = max(filter(None, (newest, time)), default=None)
    # After other files were merged, the server's next change file is unknown.
    state = ReplicationState(state.url, None, newest)
    _rewrite(extract, merged, state)
    return state


def apply_replication(
    extract: Path,
    url: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _newest: None,
) -> ReplicationState:
    """Merge all changes that a replication server has; raises UpdateFailed.

    `url` defaults to the server in the extract's header. `progress` gets the numbers of the last
    merged change file and of the newest one.
    """
    state = _state(extract)
    address = url or state.url
    if address is None:
        raise UpdateFailed(f"{extract} does not say where its changes are: name a server")
    try:
        with ReplicationServer(address) as server:
            server.set_request_parameter("timeout", 60)
            return _follow(extract, server, state, progress)
    except (requests.RequestException, OSError) as error:
        raise UpdateFailed(f"{address} cannot be reached: {type(error).__name__}") from None


def _follow(
    extract: Path,
    server: ReplicationServer,
    state: ReplicationState,
    progress: Callable[[int, int], None],
) -> ReplicationState:
    # baseurl ends with a slash, addresses given by users may not.
    url = server.baseurl.rstrip("/")
    sequence = state.sequence if url == (state.url or "").rstrip("/") else None
    if sequence is None:
        if state.time is None:
            raise UpdateFailed(f"{extract} does not say how new it is: download it again")
        sequence = server.timestamp_to_sequence(state.time)
        if sequence is None:
            raise UpdateFailed(
                f"{url} has no changes of {state.time:%Y-%m-%d} any more, or no state "
                "that can be read: download the extract again"
            )
    while True:
        newest = server.get_state_info()
        if newest is None:
            raise UpdateFailed(f"{url}/state.txt cannot be read")
        progress(sequence, newest.sequence)
        if newest.sequence <= sequence:
            return state
        diffs = server.collect_diffs(sequence + 1, max_size=_BUFFER_KB_MAX)
        if diffs is None:
            raise UpdateFailed(f"{url}: change file {sequence + 1} cannot be had")
        info = server.get_state_info(diffs.id)
        time = info.timestamp if info is not None else state.time
        state = ReplicationState(url, diffs.id, time)
        _rewrite(extract, diffs.reader, state)
        sequence = diffs.id


def _rewrite(extract: Path, changes: Any, state: ReplicationState) -> None:
    """Write the extract with the changes to a new file, and replace the extract by it."""
    beside = extract.with_name(f".new-{extract.name}")
    beside.unlink(missing_ok=True)
    try:
        with osmium.io.Reader(str(extract)) as reader:
            header = osmium.io.Header()
            box = reader.header().box()
            if box.valid():
                header.add_box(box)
            header.set("generator", "waylog")
            if state.url is not None:
                header.set("osmosis_replication_base_url", state.url)
            if state.sequence is not None:
                header.set("osmosis_replication_sequence_number", str(state.sequence))
            if state.time is not None:
                header.set("osmosis_replication_timestamp", state.time.strftime(_TIME_FORMAT))
            with closing(osmium.io.Writer(str(beside), header)) as writer:
                changes.apply_to_reader(reader, writer)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(extract)
    except RuntimeError as error:
        raise UpdateFailed(f"{extract}: {error}") from None
    finally:
        beside.unlink(missing_ok=True)


def _state(extract: Path) -> ReplicationState:
    try:
        return read_state(extract)
    except RuntimeError as error:
        raise UpdateFailed(f"{extract}: {error}") from None


def _newest_change(path: Path) -> datetime | None:
    newest: datetime | None = None
    for entity in osmium.FileProcessor(str(path)):
        time = entity.timestamp  # type: ignore[union-attr]  # no changesets in change files
        if newest is None or time > newest:
            newest = time
    # Objects without a timestamp count as of 1970.
    return newest if newest is not None and newest > datetime(1970, 1, 2, tzinfo=UTC) else None
