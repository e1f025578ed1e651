from __future__ import annotations

import subprocess
import sys

#: Expands bodies in threads, keeps a little of each, and prints the growth of the memory (KiB).
_PROGRAM = """
import threading, zlib
from tests.resident_memory import resident_kb
from waylog.process.memory_allocation import tune_memory_allocator

tune_memory_allocator()
bomb = zlib.compress(bytes(60_000_000))
kept = []

def expand():
    for _ in range(8):
        kept.append([bytes(500 + number) for number in range(50)])
        plain = zlib.decompressobj().decompress(bomb, 8_000_000)
        kept.append(plain[:60_000])
        kept.append(bytes(bytearray(plain))[:500])

before = resident_kb()
for _ in range(3):
    threads = [threading.Thread(target=expand) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(resident_kb() - before)
"""


def test_what_large_bodies_have_needed_is_given_back() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True
    )
    # 144 times 60 and 50 kB are kept.
    assert int(run.stdout) < 40_000
