"""CRC-32C compared with google-crc32c and with the standard."""

from __future__ import annotations

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.protocol.crc32c import crc32c


@given(st.binary(max_size=20_000), st.integers(0, 20_000))
@settings(max_examples=150)
def test_the_crc_is_that_of_google_crc32c(data: bytes, cut: int) -> None:
    expected = google_crc32c.value(data)
    assert crc32c(data) == expected
    assert crc32c(data, by_table=True) == expected
    assert crc32c(memoryview(data)[cut:], crc32c(data[:cut])) == expected


@pytest.mark.parametrize("size", [0, 1, 7, 8, 767, 768, 769, 6143, 6144, 6152, 100_003])
def test_the_crc_is_right_where_one_way_of_computing_it_ends(size: int) -> None:
    data = bytes(i * 7 % 251 for i in range(size))
    assert crc32c(data) == crc32c(data, by_table=True) == google_crc32c.value(data)


def test_the_crc_is_that_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720 B.4 and every catalogue of CRCs
    assert crc32c(bytes(32)) == 0x8A9136AA
