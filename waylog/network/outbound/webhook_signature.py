"""Signatures of webhooks, by which a receiver knows who has sent what and when.

The headers are those of Standard Webhooks (standardwebhooks.com, specification 1.0.0), for which
libraries exist: `webhook-id`, `webhook-timestamp` in seconds and `webhook-signature`, an
HMAC-SHA256 of "ID.TIMESTAMP.BODY".
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final

_PREFIX: Final = "whsec_"


def signing_key(secret: str) -> bytes:
    """Return the key of a secret: Base64 behind `whsec_`, else the text itself.

    Raises ValueError for what is no Base64; the message has nothing of the secret.
    """
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"what follows {_PREFIX} is not Base64") from None


def signature_headers(key: bytes, message_id: str, time_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message that is sent at this time, seconds since 1970-01-01 UTC."""
    signed = b"%b.%d.%b" % (message_id.encode(), time_s, body)
    signature = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(time_s),
        "webhook-signature": f"v1,{signature}",
    }
