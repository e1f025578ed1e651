"""Frames of a stream that is cut anywhere, without more memory than bytes received."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.protocol.framing import FrameReader, FrameTooLarge


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def read_in_steps(reader: FrameReader, stream: bytes, step: int, *, per_turn: int) -> list[bytes]:
    """Feed a stream as a socket would; take at most `per_turn` frames before each settle."""
    frames: list[bytes] = []
    position = 0
    while position < len(stream):
        buffer = reader.get_buffer()
        assert len(buffer) > 0
        count = min(step, len(buffer), len(stream) - position)
        buffer[:count] = stream[position : position + count]
        position += count
        reader.received(count)
        for _ in range(per_turn):
            body = reader.next_frame()
            if body is None:
                break
            frames.append(bytes(body))
        reader.settle()
    while (body := reader.next_frame()) is not None:
        frames.append(bytes(body))
    reader.settle()
    return frames


@settings(max_examples=300)
@given(
    st.lists(st.binary(max_size=60)),
    st.integers(min_value=1, max_value=50),
    st.integers(min_value=1, max_value=5),
)
def test_frames_survive_any_split_of_the_stream(
    bodies: list[bytes], step: int, per_turn: int
) -> None:
    shared = memoryview(bytearray(32))
    reader = FrameReader(shared, frame_bytes_max=60)
    stream = b"".join(frame(body) for body in bodies)
    assert read_in_steps(reader, stream, step, per_turn=per_turn) == bodies
    assert reader.buffered == 0


def test_readers_that_share_a_buffer_do_not_mix_their_bytes() -> None:
    shared = memoryview(bytearray(64))
    first = FrameReader(shared, frame_bytes_max=100)
    second = FrameReader(shared, frame_bytes_max=100)
    one, other = frame(b"a" * 50), frame(b"b" * 50)
    got: list[list[bytes]] = [[], []]
    for start in range(0, len(one), 7):
        got[0] += read_in_steps(first, one[start : start + 7], 7, per_turn=1)
        got[1] += read_in_steps(second, other[start : start + 7], 7, per_turn=1)
    assert got == [[b"a" * 50], [b"b" * 50]]


def test_a_large_frame_arrives_whole() -> None:
    body = bytes(range(256)) * 20_000
    reader = FrameReader(memoryview(bytearray(1024)), frame_bytes_max=len(body))
    assert read_in_steps(reader, frame(body) + frame(b"x"), 65536, per_turn=9) == [body, b"x"]


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 1001])
def test_a_length_out_of_range_is_refused_before_the_body_comes(size: int) -> None:
    reader = FrameReader(memoryview(bytearray(1024)), frame_bytes_max=1000)
    reader.get_buffer()[:4] = size.to_bytes(4, "big", signed=True)
    reader.received(4)
    with pytest.raises(FrameTooLarge):
        reader.next_frame()


def test_memory_follows_the_bytes_that_came_not_the_length_announced() -> None:
    reader = FrameReader(memoryview(bytearray(1024)), frame_bytes_max=100_000_000)
    tracemalloc.start()
    reader.get_buffer()[:4] = (100_000_000).to_bytes(4, "big")
    reader.received(4)
    assert reader.next_frame() is None
    reader.settle()
    for _ in range(10):
        buffer = reader.get_buffer()
        count = min(1000, len(buffer))
        reader.received(count)
        assert reader.next_frame() is None
        reader.settle()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


def test_frames_that_nobody_takes_yet_occupy_what_they_have() -> None:
    stream = frame(b"first") + frame(bytes(30_000))
    reader = FrameReader(memoryview(bytearray(256 * 1024)), frame_bytes_max=100_000)
    reader.get_buffer()[: len(stream)] = stream
    reader.received(len(stream))
    assert bytes(reader.next_frame() or b"") == b"first"
    reader.settle()
    assert reader.reserved == 30_004
    # There is room for more as soon as the owner receives again.
    assert read_in_steps(reader, frame(b"third"), 9, per_turn=5) == [bytes(30_000), b"third"]


def test_an_impossible_length_behind_a_frame_is_refused_in_its_turn() -> None:
    stream = frame(b"first") + b"\xff" * 10
    reader = FrameReader(memoryview(bytearray(1024)), frame_bytes_max=100)
    reader.get_buffer()[: len(stream)] = stream
    reader.received(len(stream))
    assert bytes(reader.next_frame() or b"") == b"first"
    reader.settle()
    assert len(reader.get_buffer()) > 0
    with pytest.raises(FrameTooLarge):
        reader.next_frame()


def test_the_largest_length_that_there_is_needs_no_more_memory_than_came() -> None:
    reader = FrameReader(memoryview(bytearray(1024)), frame_bytes_max=2**31 - 1)
    reader.get_buffer()[:4] = (2**31 - 1).to_bytes(4, "big")
    reader.received(4)
    assert not reader.has_frame
    assert reader.next_frame() is None
    reader.settle()
    assert reader.reserved == 64 * 1024
    assert reader.next_frame() is None


def test_more_bytes_than_the_buffer_has_cannot_have_come() -> None:
    reader = FrameReader(memoryview(bytearray(64)), frame_bytes_max=100)
    for count in (-1, 65):
        with pytest.raises(ValueError, match=f"{count} bytes"):
            reader.received(count)
    reader.get_buffer()[:4] = (90).to_bytes(4, "big")
    reader.received(4)
    reader.settle()
    assert reader.reserved == 94
    with pytest.raises(ValueError, match="do not fit"):
        reader.received(reader.reserved - 3)
