"""Access to `/metrics` and `/v1/pipeline`, which show the state of the platform.

Totals over all users reveal something about each of them, so only administrators may read them
unless the operator decides otherwise. Prometheus uses a token of its own, which is valid for
nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from waylog.observability.metrics_token import is_metrics_token

Audience = Literal["admin", "user", "public"]

AUDIENCES: Final[tuple[Audience, ...]] = get_args(Audience)


@dataclass(frozen=True)
class MetricsAccess:
    """The readers of metrics: administrators, every user, or everybody; and holders of `token`."""

    audience: Audience = "admin"
    token: str | None = field(default=None, repr=False)

    @property
    def public_routes(self) -> frozenset[str]:
        """The routes that answer anybody."""
        return frozenset(("/metrics", "/v1/pipeline") if self.audience == "public" else ())

    def is_token(self, secret: str) -> bool:
        """Tell whether a secret is the metrics token."""
        return is_metrics_token(secret, self.token)
