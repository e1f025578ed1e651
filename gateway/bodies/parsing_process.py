"""`python -m gateway.bodies.parsing_process`: parses request bodies for gateway.bodies.parsing.

A question on standard input is a length of four bytes, a Question in MessagePack, and the body. The
answer consists of frames: a length, a letter and, in a piece, JSON of a Parsed, since MessagePack
has no integers of more than 64 bits, or MessagePack of records. The process ends at the end of its
input.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

from gateway.bodies.parsing import (
    END,
    FAILED,
    PIECE,
    REFUSED,
    REST,
    SIZE_BYTES,
    Question,
    over_mqtt,
)
from gateway.bodies.rest_records import Produced, RecordsRefused, read_records
from gateway.formats import LISTS, Parsed, Parser, by_name, owntracks, positions, ulogger

_ITEMS_A_PIECE: Final = 100
_PIECE_BYTES_MAX: Final = 128 * 1024
#: Niceness: small bodies, parsed in the gateway, are served before large ones.
_NICE: Final = 10
#: Limit of the address space. 8 MiB of JSON may take some hundred MiB once parsed; a body that
#: exceeds this limit fails, and affects no other.
_MEMORY_BYTES_MAX: Final = 2 * 1024 * 1024 * 1024

PARSERS: Final[dict[str, Parser]] = {
    **by_name.PARSERS,
    ulogger.SOURCE: ulogger.parse,
    over_mqtt(owntracks.SOURCE): owntracks.parse,
    over_mqtt(positions.SOURCE): positions.parse,
}

_encode = msgspec.msgpack.Encoder().encode
_encode_parsed = msgspec.json.Encoder().encode


def pieces(part: Callable[[int, int], bytes], count: int) -> Iterator[bytes]:
    """Yield `part(start, end)` for all of `count` items, as one or more pieces.

    Pieces are small enough that decoding one of them does not take long.
    """
    for start in range(0, max(1, count), _ITEMS_A_PIECE):
        yield from _in_halves(part, start, min(start + _ITEMS_A_PIECE, max(1, count)))


def _in_halves(part: Callable[[int, int], bytes], start: int, end: int) -> Iterator[bytes]:
    piece = part(start, end)
    if len(piece) <= _PIECE_BYTES_MAX or end - start == 1:
        yield piece
        return
    middle = (start + end) // 2
    yield from _in_halves(part, start, middle)
    yield from _in_halves(part, middle, end)


def _some_of(records: list[Produced], start: int, end: int) -> bytes:
    return _encode(records[start:end])


def _part_of(parsed: Parsed, start: int, end: int) -> bytes:
    part = {name: getattr(parsed, name)[start:end] for name in LISTS}
    return _encode_parsed(msgspec.structs.replace(parsed, **part))


def main() -> None:
    """Answer questions until the end of the input."""
    # Ctrl-C reaches the whole process group; this process ends when the gateway closes its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    decoder = msgspec.msgpack.Decoder(Question)
    questions, output = sys.stdin.buffer, sys.stdout.buffer

    def answer(kind: bytes, content: bytes = b"") -> None:
        output.write((1 + len(content)).to_bytes(SIZE_BYTES, "big") + kind + content)

    while size := questions.read(SIZE_BYTES):
        try:
            question = decoder.decode(questions.read(int.from_bytes(size, "big")))
            body = questions.read(question.body_bytes)
            if question.format.startswith(REST):
                records = read_records(body, question.format.removeprefix(REST))
                found = pieces(partial(_some_of, records), len(records))
            else:
                assert question.context is not None
                parsed = PARSERS[question.format](body, question.context)
                longest = max(len(getattr(parsed, name)) for name in LISTS)
                found = pieces(partial(_part_of, parsed), longest)
            for piece in found:
                answer(PIECE, piece)
            answer(END)
        except RecordsRefused as refusal:
            answer(REFUSED, _encode((refusal.code, str(refusal))))
        except Exception as error:  # one body that makes a parser fail must not end the process
            answer(FAILED, type(error).__name__.encode())
        output.flush()


if __name__ == "__main__":
    main()
