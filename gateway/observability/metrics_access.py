"""Access to `/metrics` and `/v1/pipeline`, which tell how the platform does.

Counts over everybody tell about everybody, so that administrators alone read them unless the
operator says otherwise. Prometheus shows a token of its own, which is good for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from waylog.observability.metrics_token import is_metrics_token

Audience = Literal["admin", "user", "public"]

AUDIENCES: Final[tuple[Audience, ...]] = get_args(Audience)


@dataclass(frozen=True)
class MetricsAccess:
    """Administrators, every user, or everybody; and whoever shows `token`."""

    audience: Audience = "admin"
    token: str | None = field(default=None, repr=False)

    def is_token(self, secret: str) -> bool:
        """Tell whether a secret is the token of the metrics."""
        return is_metrics_token(secret, self.token)
