"""The token for metrics: one for all processes of a machine, and how clients present it."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from waylog.observability.metrics_token import ensure_metrics_token, is_metrics_token, shown_secret


def test_processes_that_start_at_once_have_one_token_and_leave_one_file(tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / str(number) / "metrics.token"
        at_once = threading.Barrier(8)

        def start(path: Path = path, at_once: threading.Barrier = at_once) -> str:
            at_once.wait()
            return ensure_metrics_token(path)

        with ThreadPoolExecutor(8) as threads:
            tokens = [each.result() for each in [threads.submit(start) for _ in range(8)]]
        assert set(tokens) == {path.read_text(encoding="ascii").strip()}
        assert list(path.parent.iterdir()) == [path]
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_token_that_an_operator_has_chosen_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("  chosen-by-an-operator\n\n", encoding="utf-8")
    assert ensure_metrics_token(path) == "chosen-by-an-operator"
    path.write_text("short\n", encoding="utf-8")
    with pytest.raises(ValueError, match="16 characters"):
        ensure_metrics_token(path)


def test_the_token_is_shown_as_bearer_or_as_password() -> None:
    def basic(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    for header in (
        "Bearer a:b",
        "bearer  a:b",
        f"Basic {basic('x:a:b')}",
        f"BASIC {basic(':a:b')}",
    ):
        assert shown_secret(header) == "a:b"
    for header in (
        "",
        "Bearer",
        "Basic",
        "Basic ???",
        "Basic gICA",
        f"Basic {basic('ab')}",
        "x a:b",
    ):
        assert shown_secret(header) == ""


def test_nothing_but_the_token_is_the_token() -> None:
    assert is_metrics_token("a-token-of-metrics", "a-token-of-metrics")
    # Bytes that are not UTF-8 arrive as lone surrogates.
    for secret in ("", "a-token-of-metric", "A-token-of-metrics", "\udce4"):
        assert not is_metrics_token(secret, "a-token-of-metrics")
        assert not is_metrics_token(secret, None)
