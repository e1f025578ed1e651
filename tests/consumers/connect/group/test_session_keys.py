"""Signatures of requests between workers (KIP-507)."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from consumers.connect.group.session_keys import (
    ALGORITHM_HEADER,
    SIGNATURE_HEADER,
    check_signature,
    make_key,
    signature_headers,
)
from consumers.connect.herder.refusals import Refused

KEY = make_key("HmacSHA256", None, 17)
BODY = b'[{"a":"1"}]'
ALLOWED = ("HmacSHA256", "HmacSHA512")


def test_a_key_has_the_size_that_java_gives_it() -> None:
    assert (len(KEY.key), KEY.algorithm, KEY.created_ms) == (32, "HmacSHA256", 17)
    assert len(make_key("HmacSHA256", 512, 0).key) == 64
    assert make_key("HmacSHA256", None, 0).key != KEY.key


@pytest.mark.parametrize("algorithm", ALLOWED)
def test_a_body_that_a_worker_has_signed_is_taken(algorithm: str) -> None:
    check_signature(signature_headers(KEY, algorithm, BODY), BODY, KEY, ALLOWED)


def test_a_signature_is_the_hmac_of_the_body() -> None:
    headers = signature_headers(KEY, "HmacSHA256", BODY)
    wanted = hmac.new(KEY.key, BODY, hashlib.sha256).digest()
    assert headers == {
        SIGNATURE_HEADER: base64.b64encode(wanted).decode(), ALGORITHM_HEADER: "HmacSHA256"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({SIGNATURE_HEADER: None}, 400, "missing required signature"),
        ({ALGORITHM_HEADER: None}, 400, "missing required signature"),
        ({ALGORITHM_HEADER: "HmacSHA1"}, 400, "does not support the 'HmacSHA1' key signing"),
        ({SIGNATURE_HEADER: "%"}, 400, "base64"),
        ({SIGNATURE_HEADER: "AAAA"}, 403, "Internal request contained invalid signature."),
    ],
)
def test_others_are_refused(change: dict[str, str | None], status: int, message: str) -> None:
    changed = {**signature_headers(KEY, "HmacSHA256", BODY), **change}
    headers = {name: text for name, text in changed.items() if text is not None}
    with pytest.raises(Refused, match=message) as caught:
        check_signature(headers, BODY, KEY, ALLOWED)
    assert caught.value.status == status


def test_another_body_or_key_is_refused() -> None:
    headers = signature_headers(KEY, "HmacSHA256", BODY)
    with pytest.raises(Refused) as caught:
        check_signature(headers, BODY + b" ", KEY, ALLOWED)
    assert caught.value.status == 403
    with pytest.raises(Refused) as caught:
        check_signature(headers, BODY, make_key("HmacSHA256", None, 0), ALLOWED)
    assert caught.value.status == 403


def test_a_worker_without_a_key_asks_to_come_again() -> None:
    with pytest.raises(Refused, match="is still starting up") as caught:
        check_signature(signature_headers(KEY, "HmacSHA256", BODY), BODY, None, ALLOWED)
    assert caught.value.status == 503
