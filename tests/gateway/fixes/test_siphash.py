"""SipHash against the vectors of its authors and against Python's own hash."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from gateway.fixes.known_fixes import fix_key
from gateway.fixes.siphash import hash_of

#: SipHash-2-4 of the bytes 0, 1, ... with the key 0, 1, ... 15: github.com/veorq/SipHash.
VECTORS = (
    0x726FDB47DD0E0E31,
    0x74F839C593DC67FD,
    0x0D6C8009D9A94F5A,
    0x85676696D7FB7E2D,
    0xCF2794E0277187B7,
    0x18765564CD99A68D,
    0xCBC9466E58FEE3CE,
    0xAB0200F58B01D137,
    0x93F5F5799A932462,
    0x9E0082DF0BA9E4B0,
    0x7A5DBBC594DDB9F3,
    0xF4B32F46226BADA7,
    0x751E8FBC860EE5FB,
    0x14EA5627C0843D90,
    0xF723CA908E7AF2EE,
    0xA129CA6149BE45E5,
)


def test_it_is_siphash_as_its_authors_have_it() -> None:
    key = bytes(range(16))
    hashes = [hash_of(key, bytes(range(size)), 2, 4) for size in range(16)]
    assert hashes == list(VECTORS)


@pytest.mark.skipif(sys.hash_info.algorithm != "siphash13", reason="Python hashes otherwise")
def test_it_is_what_python_itself_has() -> None:
    texts = [bytes(range(size)) for size in range(1, 70)]
    program = "print([hash(bytes(range(size))) for size in range(1, 70)])"
    printed = subprocess.check_output(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": "0"}
    )
    expected = [each % 2**64 for each in json.loads(printed)]
    assert [hash_of(bytes(16), text) for text in texts] == expected


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        hash_of(b"short", b"")


def test_keys_of_fixes_tell_devices_and_ids_apart_however_long_they_are() -> None:
    names = [("a/b", "c"), ("a/bc", ""), ("a/b", "d"), ("b/b", "c"), ("a/b", "c" * 2000)]
    assert len({fix_key(*each) for each in names}) == len(names)
