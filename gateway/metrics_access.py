"""Who may know how the platform does: `/metrics` and `/v1/pipeline`.

Counts over everybody tell about everybody, so that administrators alone read them unless the
operator says otherwise. Prometheus shows a token of its own, which is good for nothing else.
"""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

Audience = Literal["admin", "user", "public"]

AUDIENCES: Final[tuple[Audience, ...]] = get_args(Audience)

_TOKEN_PREFIX: Final = "wlm_"  # noqa: S105
_TOKEN_CHARACTERS_MIN: Final = 16


@dataclass(frozen=True)
class MetricsAccess:
    """Administrators, every user, or everybody; and whoever shows `token`."""

    audience: Audience = "admin"
    token: str | None = field(default=None, repr=False)

    def is_token(self, secret: str) -> bool:
        """Whether a secret is the token of the metrics."""
        return self.token is not None and hmac.compare_digest(
            secret.encode("utf-8", "surrogatepass"), self.token.encode()
        )


def ensure_metrics_token(path: Path) -> str:
    """The token in a file; a file that is missing is made, for its owner alone.

    Raises OSError, and ValueError for a file with something too short.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{_TOKEN_PREFIX}{secrets.token_urlsafe(32)}\n")
    token = path.read_text(encoding="utf-8").strip()
    if len(token) < _TOKEN_CHARACTERS_MIN:
        raise ValueError(f"{path} holds no token of {_TOKEN_CHARACTERS_MIN} characters or more")
    return token
