"""The ends of batches, and the process that plans them."""

from __future__ import annotations

import pickle
import socket
import struct
import subprocess
import sys
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.python_streaming_source_runner import GET_DEFAULT_READ_LIMIT_FUNC_ID

from spark.fixes.log_fixes import next_ends
from spark.history.source import LocationSource
from tests.spark.running import ROOT

OFFSETS = st.dictionaries(st.integers(0, 5), st.integers(0, 10**6))


@given(starts=OFFSETS, ends=OFFSETS, rows=st.one_of(st.none(), st.integers(1, 10**6)))
def test_batches_never_go_back_nor_beyond_the_log_and_always_end(
    starts: dict[int, int], ends: dict[int, int], rows: int | None
) -> None:
    result = next_ends(starts, ends, rows)
    assert set(result) == set(starts) | set(ends)
    for partition, end in result.items():
        start = starts.get(partition, 0)
        assert start <= end <= max(start, ends.get(partition, start))
    if rows is None:
        assert all(result[each] == max(ends[each], starts.get(each, 0)) for each in ends)
    else:
        taken = sum(end - starts.get(partition, 0) for partition, end in result.items())
        assert taken <= rows + len(result)
    # Each partition with waiting records advances: none starves behind a larger one.
    for partition, end in ends.items():
        assert end <= starts.get(partition, 0) or result[partition] > starts.get(partition, 0)


#: Spark's side of the connection is the end of a socket pair.
_RUNNER: Final = """
import socket, sys
from pyspark.sql.streaming.python_streaming_source_runner import main
connection = socket.socket(fileno=int(sys.argv[1])).makefile("rwb")
main(connection, connection)
"""


def number(value: int) -> bytes:
    return struct.pack(">i", value)


def frame(value: bytes) -> bytes:
    return number(len(value)) + value


@pytest.mark.spark
@pytest.mark.parametrize("requests", [(), (GET_DEFAULT_READ_LIMIT_FUNC_ID,)])
def test_a_reader_whose_query_is_stopped_ends_without_a_word(requests: tuple[int, ...]) -> None:
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        subprocess.Popen(
            [sys.executable, "-c", _RUNNER, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        ) as runner,
    ):
        theirs.close()
        connection = ours.makefile("rwb")
        source = LocationSource({"bootstrapservers": "127.0.0.1:1"})
        connection.write(
            frame(f"{sys.version_info.major}.{sys.version_info.minor}".encode())
            + frame(b"/nowhere")
            + number(0)  # files
            + frame(pickle.dumps(source))
            + frame(source.schema().json().encode())
            + number(1000)  # rows of a batch
        )
        connection.flush()
        assert connection.read(4) == number(0)
        # As when its thread is interrupted: Spark does not wait for the answer.
        ours.shutdown(socket.SHUT_RD)
        for request in requests:
            connection.write(number(request))
        connection.close()
        ours.close()
        _, said = runner.communicate(timeout=60)
    assert said == ""
    assert runner.returncode == 0
