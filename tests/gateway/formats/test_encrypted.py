"""Payloads encrypted with a key that only the user and the platform have."""

from __future__ import annotations

import base64
import json

import pytest

from gateway.formats import BATCH_ITEMS_MAX, Context, home_assistant, owntracks
from gateway.formats.secretbox import Undecryptable, decrypt, encrypt, key_bytes

RECEIVED = 1_761_994_812_000
PASSPHRASE = "a passphrase of mine"
KEY = "00112233445566778899aabbccddeeff" * 2
CONTEXT = Context("mika", "phone", RECEIVED, encryption_key=PASSPHRASE)
LOCATION = {"_type": "location", "lat": 50.7, "lon": 7.1, "tst": 1761994805, "tid": "mk"}


def encrypted(message: object, key: str = PASSPHRASE) -> bytes:
    return json.dumps(
        {"_type": "encrypted", "data": encrypt(json.dumps(message).encode(), key)}
    ).encode()


def test_owntracks_is_decrypted_with_the_users_key() -> None:
    parsed = owntracks.parse(encrypted(LOCATION), CONTEXT)
    (fix,) = parsed.fixes
    assert (fix.device, fix.lat, parsed.tid, parsed.encrypted) == ("mika/phone", 50.7, "mk", True)
    plain = owntracks.parse(json.dumps(LOCATION).encode(), CONTEXT)
    assert plain.fixes[0].id == fix.id
    assert not plain.encrypted


@pytest.mark.parametrize(
    ("body", "context", "reason"),
    [
        (encrypted(LOCATION), Context("mika", None, RECEIVED), "no key here"),
        (encrypted(LOCATION, "another"), CONTEXT, "another key"),
        (encrypted(json.loads(encrypted(LOCATION))), CONTEXT, "encrypted twice"),
        (b'{"_type":"encrypted","data":"AAAA"}', CONTEXT, "too short"),
        (b'{"_type":"encrypted","data":"%"}', CONTEXT, "not base64"),
        (b'{"_type":"encrypted"}', CONTEXT, "not text"),
        (encrypted("no object"), CONTEXT, "not a JSON object"),
    ],
)
def test_what_cannot_be_decrypted_is_kept_as_it_came(
    body: bytes, context: Context, reason: str
) -> None:
    parsed = owntracks.parse(body, context)
    (rejected,) = parsed.rejected
    assert reason in rejected.reason
    assert rejected.raw == body


def test_what_stands_beside_the_encrypted_data_replaces_nothing_of_it() -> None:
    body = json.loads(encrypted(LOCATION)) | {"lat": 1.5, "tst": 1_700_000_000, "note": "beside"}
    (fix,) = owntracks.parse(json.dumps(body).encode(), CONTEXT).fixes
    assert (fix.lat, fix.time) == (50.7, 1_761_994_805_000)
    assert fix.attributes is not None and fix.attributes["note"] == "beside"


def test_an_encrypted_array_is_read_up_to_the_bound_of_a_batch() -> None:
    message = {"_type": "location", "lat": 1, "lon": 2}
    messages = [message | {"tst": 1_761_000_000 + n} for n in range(BATCH_ITEMS_MAX + 5)]
    parsed = owntracks.parse(encrypted(messages), CONTEXT)
    assert len(parsed.fixes) == BATCH_ITEMS_MAX
    (rejected,) = parsed.rejected
    assert "5 of 10005 encrypted messages: too many messages" in rejected.reason


@pytest.mark.parametrize("whole", [True, False])
def test_home_assistants_app_encrypts_with_the_hexadecimal_key_of_its_registration(
    whole: bool,
) -> None:
    data: dict[str, object] = {"gps": [50.7, 7.1], "gps_accuracy": 14}
    update: object = {"type": "update_location", "data": data}
    inner = update if whole else data
    body = {
        "type": "encrypted" if whole else "update_location",
        "encrypted": True,
        "encrypted_data": encrypt(json.dumps(inner).encode(), KEY),
    }
    context = Context("mika", "tablet", RECEIVED, encryption_key=KEY)
    (fix,) = home_assistant.parse(json.dumps(body).encode(), context).fixes
    assert (fix.device, fix.lat, fix.accuracy) == ("mika/tablet", 50.7, 14)
    without = Context("mika", "tablet", RECEIVED)
    assert "no key" in home_assistant.parse(json.dumps(body).encode(), without).rejected[0].reason


def test_a_key_is_a_passphrase_padded_with_zeros_or_hexadecimal() -> None:
    assert key_bytes("abc") == b"abc" + bytes(29)
    assert key_bytes(KEY) == bytes.fromhex(KEY)
    for bad in ("", "x" * 33, "é" * 17):
        with pytest.raises(ValueError, match="1 to 32 bytes"):
            key_bytes(bad)


def test_a_bit_that_was_changed_is_noticed() -> None:
    box = bytearray(base64.b64decode(encrypt(b"hello", PASSPHRASE)))
    assert decrypt(base64.b64encode(box).decode(), PASSPHRASE) == b"hello"
    box[-1] ^= 1
    with pytest.raises(Undecryptable):
        decrypt(base64.b64encode(box).decode(), PASSPHRASE)
