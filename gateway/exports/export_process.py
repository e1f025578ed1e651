"""`python -m gateway.exports.export_process HISTORY PLACES`: makes one export.

Standard input has the question, a line of JSON (gateway.exports.questions), and then of each of its
devices the points from memory, in pieces after their lengths. Standard output gets the export,
which is whole if the process ends with 0.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, BinaryIO, Final, cast

import msgspec

from gateway.exports.fix_rows import days_of, recent_of
from gateway.exports.questions import FORMATS, LENGTH_BYTES, ExportQuestion, plain_name
from gateway.tracks.archive import Question
from gateway.tracks.archive_process import EVER_MS, Reader
from gateway.tracks.track_points import Points, unpacked
from waylog.history.device_rows import devices_of
from waylog.history.history_reader import HistoryReader
from waylog.history.track_writers import WRITERS

_NICENESS: Final = 10
_ROWS_MAX: Final = 10_000_000
_STEM_CHARACTERS_MAX: Final = 80
_README: Final = """\
Positions and settings of user {user}, of {time} (UTC).

fixes/      one file for each device, with all that is known of each position
visits/, trips/, places/      what the platform has made of them
*.json      the account: friends, zones, alerts, forwardings (without secrets)

Not in here: events and messages that were refused, which the log has for some weeks; sessions,
passkeys, secrets and browsers with notices; the list of imports.

`waylog replay` and the page's import read the files in fixes/.
"""


class _Output:
    """A stream that can only be written to, and says how much has been."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._written = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write all of it."""
        size = memoryview(data).nbytes
        self._stream.write(data)
        self._written += size
        return size

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._written

    def flush(self) -> None:
        """Write what is buffered."""
        self._stream.flush()

    def close(self) -> None:
        """Leave the stream open: it is not this object's."""


class _Export:
    def __init__(self, history: str, places: str, questions: BinaryIO) -> None:
        self._history = HistoryReader(history) if history else None
        self._reader = Reader(history, places)
        self._has_places = bool(places)
        self._questions = questions
        self.question = msgspec.json.decode(questions.readline(), type=ExportQuestion)

    def write(self, output: BinaryIO) -> None:
        """Write the export. Raises OSError, HistoryUnreadable, AnswerUnavailable."""
        if self.question.is_everything:
            self._everything(output)
            return
        with self._writer(output) as write:
            for device in self.question.devices:
                write(device, self._recent())
        output.flush()

    def _everything(self, output: BinaryIO) -> None:
        question = self.question
        names = _Names()
        with zipfile.ZipFile(
            cast("IO[bytes]", _Output(output)), "w", zipfile.ZIP_DEFLATED, allowZip64=True
        ) as archive:
            now = time.gmtime()

            def member(name: str) -> IO[bytes]:
                info = zipfile.ZipInfo(name, now[:6])
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o600 << 16
                return archive.open(info, "w", force_zip64=True)

            with member("README.txt") as file:
                moment = time.strftime("%Y-%m-%d %H:%M", now)
                file.write(_README.format(user=question.user, time=moment).encode())
            for name, document in question.documents.items():
                with member(name) as file:
                    file.write(msgspec.json.format(bytes(document), indent=1))
            recent = [(device, self._recent()) for device in question.devices]
            known = dict(recent)
            if self._history is not None:
                for device in devices_of(self._history, question.user):
                    known.setdefault(device, [])
            for device, points in known.items():
                stem = names.of(device)
                with (
                    member(f"fixes/{stem}.{FORMATS[question.format].suffix}") as file,
                    self._writer(file) as write,
                ):
                    write(device, points)
                if device in question.places:
                    with member(f"places/{stem}.json") as file:
                        file.write(msgspec.json.format(bytes(question.places[device]), indent=1))
                for kind in ("visits", "trips") if self._has_places else ():
                    rows = self._reader.answer(
                        Question(kind, device, -EVER_MS, EVER_MS, _ROWS_MAX), unpacked(b"")
                    )
                    with member(f"{kind}/{stem}.json") as file:
                        file.write(rows)

    @contextmanager
    def _writer(self, output: IO[bytes]) -> Iterator[Callable[[str, list[Points]], None]]:
        writer = WRITERS[self.question.format](cast("IO[bytes]", _Output(output)))

        def write(device: str, recent: list[Points]) -> None:
            writer.begin(device)
            found = recent_of([unpacked(b""), *recent], self.question)
            for day in days_of(self._history, device, self.question, found):
                writer.day(day)
            writer.end()

        yield write
        writer.close()

    def _recent(self) -> list[Points]:
        """Read the points of the next device."""
        found = []
        while size := int.from_bytes(self._questions.read(LENGTH_BYTES)):
            found.append(unpacked(self._questions.read(size)))
        return found


class _Names:
    """Names of files that every system takes, each once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def of(self, device: str) -> str:
        """Return the name of a device's files, without a suffix."""
        plain = plain_name(device.partition("/")[2])[:_STEM_CHARACTERS_MAX]
        plain = plain.lstrip(".") or "device"
        number, name = 1, plain
        while name.lower() in self._given:
            number += 1
            name = f"{plain}-{number}"
        self._given.add(name.lower())
        return name


def main(history: str, places: str) -> None:
    """Make the export that the input asks for."""
    # Ctrl-C reaches the whole process group; the gateway ends this process when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    export = _Export(history, places, sys.stdin.buffer)
    export.write(sys.stdout.buffer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    # Arrow's threads that are still starting while the interpreter shuts down abort the process.
    os._exit(0)
