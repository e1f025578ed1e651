"""`python -m gateway.imports.import_process`: reads the files of one import.

On standard input comes the plan (gateway.imports.records.ReadingPlan), one line of JSON. Standard
output gets frames: a byte that names the kind, the length in four bytes, and JSON: fixes, progress,
and at the end the whole result. The process ends at the end of its input, so that none outlives the
gateway that has started it.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from functools import partial
from typing import BinaryIO, Final

import msgspec

from gateway.imports.reading import Reading, TooMuch
from gateway.imports.records import ReadingPlan, ReadingProgress
from waylog.messages import Fix, encode
from waylog.process.threads import start_thread

#: Kinds of frames, and the bytes of the length before each.
FIXES, PROGRESS, END = b"F", b"P", b"E"
LENGTH_BYTES: Final = 4

#: A frame of fixes ends soon after this size.
_FRAME_BYTES: Final = 160 * 1024
#: What is live comes first.
_NICENESS: Final = 10


def _bound(plan: ReadingPlan) -> None:
    """Let hostile files fill neither the memory nor the disk."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (plan.memory_bytes_max,) * 2)
    # Temporary files: what is sorted, and an archive in an archive.
    resource.setrlimit(resource.RLIMIT_FSIZE, (plan.content_bytes_max,) * 2)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _end_with_input(questions: BinaryIO) -> None:
    questions.read()
    os._exit(1)


def _frames(fixes: Iterable[Fix]) -> Iterator[bytes]:
    """Yield JSON arrays that the gateway decodes in a millisecond, however long the fixes are."""
    part: list[bytes] = []
    size = 0
    for fix in fixes:
        part.append(encode(fix))
        size += len(part[-1])
        if size > _FRAME_BYTES:
            yield b"[" + b",".join(part) + b"]"
            part, size = [], 0
    if part:
        yield b"[" + b",".join(part) + b"]"


def main() -> None:
    """Read, and write the frames."""
    # Ctrl-C reaches the whole process group; this process ends when the gateway closes its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=ReadingPlan)
    _bound(plan)
    start_thread(partial(_end_with_input, sys.stdin.buffer), "watching the gateway")
    output = sys.stdout.buffer

    def write(kind: bytes, content: bytes) -> None:
        output.write(kind + len(content).to_bytes(LENGTH_BYTES) + content)
        output.flush()

    def tell(progress: ReadingProgress) -> None:
        write(PROGRESS, msgspec.json.encode(progress))

    progress = ReadingProgress()
    try:
        reading = Reading(plan, tell)
        progress = reading.progress
        for fixes in reading.batches():
            for content in _frames(fixes):
                write(FIXES, content)
    except TooMuch as error:
        progress.error = f"the files have too much in them: {error}"
    except MemoryError:
        progress.error = "the files need more memory than an import may have"
    except OSError as error:
        progress.error = f"the files could not be read: {error.strerror or type(error).__name__}"
    except Exception:  # no content of a file may end it without a word
        traceback.print_exc()
        progress.error = "the files could not be read; the gateway's log has the details"
    write(END, msgspec.json.encode(progress))


if __name__ == "__main__":
    main()
    os._exit(0)
