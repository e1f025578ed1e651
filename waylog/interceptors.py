"""Interceptors: `@performance_logged` and `@parameter_logged`.

They stand on methods of objects that have an attribute `telemetry`, and feed the topics
`performance` and `parameter`. At thousands of calls a second a record for each would cost more than
the call, so each method writes at most RECORDS_PER_S records a second; every record says how many
calls it stands for, and none goes uncounted.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import msgspec

from waylog.topics import PARAMETER, PERFORMANCE

P = ParamSpec("P")
R = TypeVar("R")

RECORDS_PER_S: Final = 20

#: Parameters whose values never leave the process.
SECRET_NAMES: Final = frozenset(
    {"password", "token", "secret", "authorization", "api_key", "credentials", "passphrase"}
)


class Telemetry(Protocol):
    """Where the records of interceptors go. Must not block and must not raise."""

    def record(self, topic: str, value: bytes) -> None:
        """Take one record; it may be dropped when there are too many."""


class _Window:
    """The calls of one method since its last record."""

    __slots__ = ("calls", "failures", "last_record", "longest", "total")

    def __init__(self) -> None:
        self.calls = 0
        self.failures = 0
        self.total = 0.0
        self.longest = 0.0
        self.last_record = 0.0


def _window(telemetry: Telemetry, topic: str, method: str) -> _Window:
    windows: dict[tuple[str, str], _Window] | None = getattr(telemetry, "windows", None)
    if windows is None:
        windows = {}
        telemetry.windows = windows  # type: ignore[attr-defined]
    window = windows.get((topic, method))
    if window is None:
        window = windows[(topic, method)] = _Window()
    return window


def _measured(telemetry: Telemetry, method: str, started: float, failed: bool) -> None:
    now = time.perf_counter()
    duration = now - started
    window = _window(telemetry, PERFORMANCE, method)
    window.calls += 1
    window.failures += failed
    window.total += duration
    window.longest = max(window.longest, duration)
    if now - window.last_record < 1 / RECORDS_PER_S:
        return
    record = {
        "method": method,
        "time": time.time_ns() // 1_000_000,
        "duration_ms": round(duration * 1e3, 3),
        "calls": window.calls,
        "failures": window.failures,
        "mean_ms": round(window.total / window.calls * 1e3, 3),
        "max_ms": round(window.longest * 1e3, 3),
    }
    window.calls = window.failures = 0
    window.total = window.longest = 0.0
    window.last_record = now
    telemetry.record(PERFORMANCE, msgspec.json.encode(record))


def performance_logged(function: Callable[P, R]) -> Callable[P, R]:
    """Record how long a method takes, until it returns or until the future it returns is done."""
    method = function.__qualname__

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
            started = time.perf_counter()
            failed = True
            try:
                result = await function(*args, **kwargs)
                failed = False
                return result
            finally:
                _measured(args[0].telemetry, method, started, failed)  # type: ignore[attr-defined]

        return coroutine  # type: ignore[return-value]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        telemetry: Telemetry = args[0].telemetry  # type: ignore[attr-defined]
        started = time.perf_counter()
        try:
            result = function(*args, **kwargs)
        except BaseException:
            _measured(telemetry, method, started, True)
            raise
        if isinstance(result, asyncio.Future):
            result.add_done_callback(
                lambda future: _measured(
                    telemetry,
                    method,
                    started,
                    future.cancelled() or future.exception() is not None,
                )
            )
        else:
            _measured(telemetry, method, started, False)
        return result

    return call


def without_secrets(value: Any, name: str = "") -> Any:
    """A copy of `value` that can be written to a log: secrets replaced, bytes shortened."""
    if name.lower() in SECRET_NAMES:
        return "[secret]"
    if isinstance(value, msgspec.Struct):
        return without_secrets(msgspec.to_builtins(value))
    if isinstance(value, dict):
        return {str(key): without_secrets(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [without_secrets(item) for item in list(value)[:20]]
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return type(value).__name__


def parameter_logged(function: Callable[P, R]) -> Callable[P, R]:
    """Record the arguments of a method, secrets removed."""
    method = function.__qualname__
    names = list(inspect.signature(function).parameters)[1:]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        telemetry: Telemetry = args[0].telemetry  # type: ignore[attr-defined]
        window = _window(telemetry, PARAMETER, method)
        window.calls += 1
        now = time.perf_counter()
        if now - window.last_record >= 1 / RECORDS_PER_S:
            arguments = dict(zip(names, args[1:], strict=False)) | kwargs
            record = {
                "method": method,
                "time": time.time_ns() // 1_000_000,
                "arguments": without_secrets(arguments),
                "calls": window.calls,
            }
            window.calls = 0
            window.last_record = now
            telemetry.record(PARAMETER, msgspec.json.encode(record))
        return function(*args, **kwargs)

    return call
