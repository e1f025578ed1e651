"""The metrics token."""

from __future__ import annotations

from gateway.observability.metrics_access import MetricsAccess


def test_where_there_is_no_token_no_secret_is_it() -> None:
    assert not any(MetricsAccess().is_token(secret) for secret in ("", "None", "wlm_"))
    assert MetricsAccess(token="wlm_x").is_token("wlm_x")
    assert not MetricsAccess(token="wlm_x").is_token("wlm_")
