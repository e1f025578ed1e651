"""Signatures as Standard Webhooks has them."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from waylog.network.outbound.webhook_signature import signature_headers, signing_key


def test_the_example_of_the_specification() -> None:
    # Specification 1.0.0, "Symmetric"; the same secret, id, time and body.
    headers = signature_headers(
        signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        b'{"test": 2432232314}',
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_secret_may_be_any_text() -> None:
    (signature,) = [
        value
        for name, value in signature_headers(signing_key("geheim"), "a", 5, b"\xff").items()
        if name == "webhook-signature"
    ]
    digest = hmac.new(b"geheim", b"a.5.\xff", hashlib.sha256).digest()
    assert signature == "v1," + base64.b64encode(digest).decode()


def test_a_secret_that_is_no_base64_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="not Base64") as raised:
        signing_key("whsec_s3cr3t!")
    assert "s3cr3t" not in str(raised.value)
