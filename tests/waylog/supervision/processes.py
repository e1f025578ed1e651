"""Processes that tests have supervised, and what there is to see of them."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import child_processes
from waylog.supervision.process_spec import ProcessSpec

#: On a machine that has much else to do, a Python may need many seconds to start.
PATIENCE_S = 240.0


READY_THEN_WAIT = """
    import signal
    from waylog.process.notify import notify_ready
    print("started", flush=True)
    notify_ready()
    signal.pause()
"""


def spec(name: str, program: str, ready_timeout_s: float = PATIENCE_S) -> ProcessSpec:
    return ProcessSpec(
        name, [sys.executable, "-c", textwrap.dedent(program)], ready_timeout_s=ready_timeout_s
    )


def state(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "processes.json").read_text())[name]
    return found


async def until(condition: Any, timeout_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def executable(path: Path) -> ProcessSpec:
    """Write a program to an executable file of its own, which a test can remove."""
    path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(READY_THEN_WAIT))
    path.chmod(0o755)
    return ProcessSpec("one", [str(path)])


def children() -> set[int]:
    """Return the living processes that this one has started."""
    return set(child_processes.children())


def fail_once(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    error: BaseException,
    when: Callable[..., bool] = lambda *_: True,
) -> None:
    """Have the next call of a function raise `error`; `when` may choose which call."""
    original = getattr(owner, name)
    errors = [error]

    def called(*arguments: Any, **named: Any) -> Any:
        if errors and when(*arguments):
            raise errors.pop()
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, called)
