"""Makes one function of a process fail once, as if a mistake in it had come to light.

WAYLOG_PLANT is `MODULE:CLASS.METHOD:EXCEPTION`; the method raises the exception, a built-in one or
one of asyncio, the first time that it is called when the file WAYLOG_PLANT_NOW exists.
"""

from __future__ import annotations

import builtins
import functools
import importlib.abc
import importlib.machinery
import inspect
import os
import sys
from asyncio import CancelledError
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any


class _Planting(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, name: str, exception: str, trigger: str) -> None:
        self._module = module
        self._class, _, self._method = name.partition(".")
        self._exception: type[BaseException] = vars(builtins).get(exception, CancelledError)
        self._trigger = Path(trigger)
        self._has_failed = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._plant(getattr(module, self._class), module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _plant(self, owner: type, module: ModuleType) -> None:
        original = inspect.getattr_static(owner, self._method)

        @functools.wraps(original)
        def planted(*arguments: Any, **named: Any) -> Any:
            self._fail()
            return original(*arguments, **named)

        @functools.wraps(original)
        async def planted_coroutine(*arguments: Any, **named: Any) -> Any:
            self._fail()
            return await original(*arguments, **named)

        chosen: Any = planted_coroutine if inspect.iscoroutinefunction(original) else planted
        # In the traceback it stands as a function of its module.
        function = FunctionType(
            chosen.__code__, module.__dict__, original.__name__, None, chosen.__closure__
        )
        setattr(owner, self._method, function)

    def _fail(self) -> None:
        if not self._has_failed and self._trigger.exists():
            self._has_failed = True
            raise self._exception("nobody has thought of this")


if plant := os.environ.get("WAYLOG_PLANT"):
    where, what, error = plant.split(":")
    sys.meta_path.insert(0, _Planting(where, what, error, os.environ["WAYLOG_PLANT_NOW"]))
