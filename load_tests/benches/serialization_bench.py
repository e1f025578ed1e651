"""Fixes as JSON and as Avro: time of a record, and bytes, alone and in an lz4 batch.

    python -m load_tests.benches.serialization_bench [--fixes N]

No registry is asked: a serializer asks once for each schema. The prefix with the schema's id (5
bytes) is counted.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import lz4.frame

from waylog.messages import Fix, decode_fix, encode, fix_id
from waylog.serialization.avro_schema import AvroSchema
from waylog.serialization.message_schemas import MessageSchema

_BATCH: Final = 100
_ROUNDS: Final = 5
_START_MS: Final = 1_780_000_000_000
_PREFIX_BYTES: Final = 5


def make_fixes(count: int) -> list[Fix]:
    """Return fixes of 100 devices that move."""
    draw = random.Random(1)
    fixes = []
    for number in range(count):
        device = f"user{number % 100}/phone"
        time_ms = _START_MS + number * 50
        lat, lon = round(47 + draw.random(), 6), round(9 + draw.random(), 6)
        fixes.append(
            Fix(
                id=fix_id(device, time_ms, lat, lon),
                device=device,
                user=device.partition("/")[0],
                lat=lat,
                lon=lon,
                time=time_ms,
                received=time_ms + 120,
                accuracy=float(draw.randrange(3, 40)),
                altitude=round(draw.uniform(200, 900), 1),
                speed=round(draw.uniform(0, 30), 1),
                course=float(draw.randrange(360)),
                battery=float(draw.randrange(100)),
                source="owntracks",
            )
        )
    return fixes


def _us(work: Callable[[Any], object], items: Sequence[Any]) -> float:
    """Return the microseconds of one item, the least of several rounds."""
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        for each in items:
            work(each)
        best = min(best, time.process_time() - began)
    return best / len(items) * 1e6


def _batch_bytes(values: Sequence[bytes]) -> float:
    """Return the bytes of a value in a compressed batch."""
    batches = [b"".join(values[at : at + _BATCH]) for at in range(0, len(values), _BATCH)]
    return sum(len(lz4.frame.compress(each)) for each in batches) / len(values)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixes", type=int, default=10_000)
    fixes = make_fixes(parser.parse_args().fixes)
    messages = MessageSchema(Fix)
    schema = AvroSchema(messages.text)
    older = json.loads(messages.text)
    older["fields"] = older["fields"][:-2]
    reader = AvroSchema(json.dumps(older))
    as_json = [encode(each) for each in fixes]
    as_avro = [schema.write(messages.to_avro(each)) for each in fixes]
    prefixed = [bytes(_PREFIX_BYTES) + each for each in as_avro]
    rows = (
        ("JSON", _us(encode, fixes), _us(decode_fix, as_json), as_json),
        (
            "Avro",
            _us(lambda fix: schema.write(messages.to_avro(fix)), fixes),
            _us(lambda data: messages.from_avro(schema.read(data)), as_avro),
            prefixed,
        ),
        (
            "Avro, dicts",
            _us(schema.write, [messages.to_avro(each) for each in fixes]),
            _us(schema.read, as_avro),
            prefixed,
        ),
        ("Avro, dicts, another reader", None, _us(lambda data: schema.read(data, reader), as_avro),
         prefixed),
    )  # fmt: skip
    print("| form | write, us | read, us | bytes | bytes, lz4 |\n|---|---|---|---|---|")
    for name, write, read, values in rows:
        size = sum(map(len, values)) / len(values)
        written = "" if write is None else f"{write:.2f}"
        print(f"| {name} | {written} | {read:.2f} | {size:.0f} | {_batch_bytes(values):.0f} |")


if __name__ == "__main__":
    main()
