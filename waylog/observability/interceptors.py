"""Interceptors: `@performance_logged` and `@parameter_logged`.

They decorate methods of objects that have an attribute `telemetry`, and feed the topics
`performance` and `parameter`. At thousands of calls a second a record for each would cost more than
the call, so each method writes at most RECORDS_PER_S records a second. Every record has the number
of calls since the last one, so none goes uncounted. Of calls that return a future, only
RECORDS_PER_S a second are measured to the end; `measured` says how many.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import msgspec

from waylog.kafka.topics import PARAMETER, PERFORMANCE

P = ParamSpec("P")
R = TypeVar("R")

RECORDS_PER_S: Final = 20
_INTERVAL_S: Final = 1 / RECORDS_PER_S

#: Names of parameters whose values never leave the process.
SECRET_NAMES: Final = frozenset(
    {"password", "token", "secret", "authorization", "api_key", "credentials", "passphrase"}
)

#: The members of a message whose values a record of topic `parameter` has: how the message came,
#: but no position, time of a fix or other data of the device. Other members are given by kind only.
TOLD_OF_MESSAGES: Final = frozenset(
    {"device", "user", "source", "trigger", "received", "type", "reason"}
)


class Telemetry(Protocol):
    """The destination of interceptor records. Must not block and must not raise."""

    def record(self, topic: str, value: bytes) -> None:
        """Take one record; it may be dropped if there are too many."""


class _Window:
    """The calls of one method since its last record."""

    __slots__ = (
        "calls",
        "failures",
        "last_followed",
        "last_record",
        "longest",
        "measured",
        "total",
    )

    def __init__(self) -> None:
        self.calls = 0
        self.measured = 0
        self.failures = 0
        self.total = 0.0
        self.longest = 0.0
        self.last_record = 0.0
        self.last_followed = 0.0


def _window(telemetry: Telemetry, name: str) -> _Window:
    try:
        return telemetry.windows[name]  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        telemetry.windows = {}  # type: ignore[attr-defined]
    except KeyError:
        pass
    window = telemetry.windows[name] = _Window()  # type: ignore[attr-defined]
    return window


def count_calls(telemetry: Telemetry, method: str, calls: int) -> None:
    """Count calls that bypassed a method's interceptors, so that the next record includes them.

    For loops that cannot afford a Python call for each item and send only samples through the
    method itself.
    """
    for topic in (PERFORMANCE, PARAMETER):
        _window(telemetry, f"{topic} {method}").calls += calls


def _measured(
    telemetry: Telemetry, window: _Window, method: str, started: float, failed: bool
) -> None:
    now = time.perf_counter()
    duration = now - started
    window.measured += 1
    window.failures += failed
    window.total += duration
    window.longest = max(window.longest, duration)
    if now - window.last_record < _INTERVAL_S:
        return
    record = {
        "method": method,
        "time": time.time_ns() // 1_000_000,
        "duration_ms": round(duration * 1e3, 3),
        "calls": window.calls,
        "measured": window.measured,
        "failures": window.failures,
        "mean_ms": round(window.total / window.measured * 1e3, 3),
        "max_ms": round(window.longest * 1e3, 3),
    }
    window.calls = window.measured = window.failures = 0
    window.total = window.longest = 0.0
    window.last_record = now
    telemetry.record(PERFORMANCE, msgspec.json.encode(record))


def performance_logged(function: Callable[P, R]) -> Callable[P, R]:
    """Record how long a method takes, until it returns or until its result is done.

    The latter applies to a future, or to any other result with `add_done_callback`.
    """
    method = function.__qualname__
    name = f"{PERFORMANCE} {method}"

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
            telemetry: Telemetry = args[0].telemetry  # type: ignore[attr-defined]
            started = time.perf_counter()
            failed = True
            try:
                result = await function(*args, **kwargs)
                failed = False
                return result
            finally:
                window = _window(telemetry, name)
                window.calls += 1
                _measured(telemetry, window, method, started, failed)

        return coroutine  # type: ignore[return-value]

    perf_counter = time.perf_counter

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        telemetry: Telemetry = args[0].telemetry  # type: ignore[attr-defined]
        window = _window(telemetry, name)
        window.calls += 1
        started = perf_counter()
        try:
            result = function(*args, **kwargs)
        except BaseException:
            _measured(telemetry, window, method, started, True)
            raise
        if not hasattr(result, "add_done_callback"):
            _measured(telemetry, window, method, started, False)
        elif started - window.last_followed >= _INTERVAL_S:
            window.last_followed = started
            result.add_done_callback(
                lambda future: _measured(
                    telemetry,
                    window,
                    method,
                    started,
                    future.cancelled() or future.exception() is not None,
                )
            )
        return result

    return call


def without_secrets(value: Any, name: str = "") -> Any:
    """Return a copy of `value` for a log: secrets replaced, bytes shortened."""
    if name.lower() in SECRET_NAMES:
        return "[secret]"
    if isinstance(value, msgspec.Struct):
        return {
            field: without_secrets(item, field) if field in TOLD_OF_MESSAGES else _kind(item)
            for field in value.__struct_fields__
            if (item := getattr(value, field)) is not None
        }
    if isinstance(value, dict):
        return {str(key): without_secrets(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [without_secrets(item) for item in list(value)[:20]]
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return type(value).__name__


def _kind(value: Any) -> str:
    """Return the type and length of a value, without the value."""
    size = f" of {len(value)}" if isinstance(value, str | bytes | list | tuple | dict) else ""
    return f"[{type(value).__name__}{size}]"


def parameter_logged(function: Callable[P, R]) -> Callable[P, R]:
    """Record a method's arguments, without secrets; of messages only TOLD_OF_MESSAGES."""
    method = function.__qualname__
    name = f"{PARAMETER} {method}"
    names = list(inspect.signature(function).parameters)[1:]
    perf_counter = time.perf_counter

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        telemetry: Telemetry = args[0].telemetry  # type: ignore[attr-defined]
        window = _window(telemetry, name)
        window.calls += 1
        now = perf_counter()
        if now - window.last_record >= _INTERVAL_S:
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
