"""An authorization server for tests: keys, their key set, and tokens."""

from __future__ import annotations

import json
import time
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, Key, KeyParameters, KeySet, RSAKey


class TokenMint:
    """Signs tokens with its newest key."""

    def __init__(self, kind: str = "RS256") -> None:
        self._kind = kind
        self._keys: list[Key] = []
        self.new_key()

    def new_key(self) -> None:
        """Sign with a new key from now on; the old ones stay in the key set."""
        parameters: KeyParameters = {"kid": f"key-{len(self._keys)}", "use": "sig"}
        if self._kind.startswith("ES"):
            self._keys.append(ECKey.generate_key("P-256", parameters))
        else:
            self._keys.append(RSAKey.generate_key(2048, parameters))

    def key_set(self) -> bytes:
        """Return the public keys as JSON."""
        return json.dumps(KeySet(self._keys).as_dict(private=False)).encode()

    def token(self, subject: str = "anna", *, lifetime_s: float = 60, **claims: Any) -> str:
        """Return a token; a claim that is None is left out."""
        now = int(time.time())
        given = {"sub": subject, "iat": now, "exp": now + int(lifetime_s)} | claims
        header = {"alg": self._kind, "kid": self._keys[-1].kid}
        return jwt.encode(
            header, {name: value for name, value in given.items() if value is not None},
            self._keys[-1], algorithms=[self._kind],
        )  # fmt: skip


def first_message(token: str, authorization: str = "", **extensions: str) -> bytes:
    """Return the first message of an OAUTHBEARER client."""
    more = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    name = f"a={authorization}" if authorization else ""
    return f"n,{name},\x01auth=Bearer {token}\x01{more}\x01".encode()
