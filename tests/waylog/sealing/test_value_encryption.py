"""Sealed values: who can read them, and whether changes are detected."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waylog.config import ConfigError
from waylog.sealing.sealing import is_sealed, key_id_of
from waylog.sealing.value_encryption import (
    NotAuthentic,
    ValueKey,
    ensure_master_key,
    load_master_key,
    owner_of,
    record_key,
    seal,
    unseal,
    unwrap,
    wrap,
)


@given(st.binary(max_size=300), st.none() | st.binary(max_size=40))
def test_what_was_sealed_is_read_with_its_key(value: bytes, record: bytes | None) -> None:
    key = ValueKey.new("ada/phone")
    sealed = seal(value, key, record)
    assert is_sealed(sealed)
    assert not is_sealed(value) or value.startswith(sealed[:2])
    assert key_id_of(sealed) == key.key_id
    assert unseal(sealed, key.secret, record) == value
    assert seal(value, key, record) != sealed


@given(st.data())
def test_any_change_is_noticed(data: st.DataObject) -> None:
    key = ValueKey.new("ada/phone")
    sealed = bytearray(seal(b'{"lat":47.1}', key, b"ada/phone"))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(NotAuthentic):
        unseal(bytes(sealed), key.secret, b"ada/phone")


@given(st.binary(max_size=60))
def test_what_is_no_sealed_value_is_noticed(value: bytes) -> None:
    with pytest.raises(NotAuthentic):
        unseal(value, bytes(32), b"ada/phone")


def test_a_value_belongs_to_its_record_and_its_key() -> None:
    key = ValueKey.new("ada/phone")
    sealed = seal(b"{}", key, b"ada/phone")
    with pytest.raises(NotAuthentic):
        unseal(sealed, key.secret, b"bob/phone")
    with pytest.raises(NotAuthentic):
        unseal(sealed, ValueKey.new("ada/phone").secret, b"ada/phone")


def test_a_key_in_the_log_is_of_use_with_the_master_key_alone() -> None:
    key, master = ValueKey.new("ada/phone"), bytes(range(32))
    wrapped = wrap(key, master, 1)
    assert key.secret not in wrapped
    assert unwrap(wrapped, master) == key
    with pytest.raises(ConfigError, match="another master key"):
        unwrap(wrapped, bytes(32))


def test_a_device_owns_what_its_key_begins_with() -> None:
    key = ValueKey.new("ada/phone")
    assert owner_of(record_key(key)) == owner_of(b"ada/phone") == owner_of(b"ada/phone\n4c1f")
    assert owner_of(None) == ""


def test_a_master_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    ensure_master_key(path)
    made = load_master_key(path)
    ensure_master_key(path)
    assert load_master_key(path) == made
    assert len(made) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("abc\n")
    for broken in (path, tmp_path / "none"):
        with pytest.raises(ConfigError):
            load_master_key(broken)
