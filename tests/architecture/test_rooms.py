"""The plan of the folders: no folder imports one that imports it, and none grows too large.

import-linter checks the order of the packages. It does not see Cython modules, so both kinds of
source files are read here. Between folders imports for type checking alone do not count.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (
    *("waylog", "broker_core", "gateway", "geoservice", "consumers", "spark", "load_tests"),
)
MODULES_MAX: Final = 21
#: One file for each API.
LARGER: Final = {"broker_core.protocol.definitions": 80}

_CYTHON_IMPORT: Final = re.compile(r"^\s*from ([\w.]+) c?import (\([^)]*\)|[^\n(]*)", re.MULTILINE)


@cache
def sources() -> dict[str, list[Path]]:
    """Return the files of each module; a Cython module has several."""
    modules: dict[str, list[Path]] = defaultdict(list)
    for package in PACKAGES:
        for suffix in ("py", "pyx", "pxd"):
            for path in sorted((ROOT / package).rglob(f"*.{suffix}")):
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                modules[name.removesuffix(".__init__")].append(path)
    return modules


def imports_of(
    path: Path, nodes: Callable[[ast.AST], Iterable[ast.AST]]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules that a file imports from, and the imported names."""
    if path.suffix == ".py":
        for node in nodes(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                yield node.module, [each.name for each in node.names]
            elif isinstance(node, ast.Import):
                yield from ((each.name, []) for each in node.names)
    else:
        for module, names in _CYTHON_IMPORT.findall(path.read_text()):
            yield module, re.findall(r"\w+", names)


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except those below `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from runtime_nodes(node)


def folder_of(module: str, modules: dict[str, list[Path]]) -> str:
    """Return the folder of a module; a package is its own."""
    if any(path.name == "__init__.py" for path in modules[module]):
        return module
    return module.rpartition(".")[0]


def test_no_folder_imports_one_that_imports_it() -> None:
    modules = sources()
    graph: dict[str, set[str]] = defaultdict(set)
    why: dict[tuple[str, str], str] = {}
    for module, paths in modules.items():
        for path in paths:
            for imported, names in imports_of(path, runtime_nodes):
                for target in (*(f"{imported}.{name}" for name in names), imported):
                    if target in modules:
                        one, other = folder_of(module, modules), folder_of(target, modules)
                        if one != other:
                            graph[one].add(other)
                            why[one, other] = f"{module} imports {target}"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = error.args[1]
        steps = [why[each] for each in zip(cycle[1:], cycle, strict=False)]
        pytest.fail("folders in a circle: " + "; ".join(reversed(steps)))


def test_no_module_of_the_broker_is_in_a_circle_not_even_for_type_checking() -> None:
    modules = {name: paths for name, paths in sources().items() if name.startswith("broker_core.")}
    graph: dict[str, set[str]] = defaultdict(set)
    for module, paths in modules.items():
        for path in paths:
            for imported, names in imports_of(path, ast.walk):
                below = {f"{imported}.{name}" for name in names} & modules.keys()
                if len(below) < len(names) or not names:
                    below |= {imported} & modules.keys()
                graph[module] |= below - {module}
    assert len(graph) > 200
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def test_folders_of_the_gateway_import_only_those_of_later_rows() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = page.partition("| from top to bottom |\n|---|\n")[2].partition("\n\n")[0]
    levels = {
        folder.rstrip("/").replace("/", "."): number
        for number, row in enumerate(rows.splitlines())
        for folder in re.findall(r"`([\w/]+/)`", row)
    }
    modules = {name: paths for name, paths in sources().items() if name.startswith("gateway")}
    assert levels.keys() == {folder_of(name, modules) for name in modules}
    for module, paths in modules.items():
        one = folder_of(module, modules)
        for path in paths:
            for imported, names in imports_of(path, runtime_nodes):
                for target in {
                    imported,
                    *(f"{imported}.{name}" for name in names),
                } & modules.keys():
                    other = folder_of(target, modules)
                    assert one == other or levels[one] < levels[other], f"{module}: {target}"


def test_folders_have_few_modules() -> None:
    modules = sources()
    sizes = Counter(
        folder_of(name, modules)
        for name, paths in modules.items()
        if all(path.name != "__init__.py" for path in paths)
    )
    assert len(sizes) > 40
    too_large = {
        folder: count for folder, count in sizes.items() if count > LARGER.get(folder, MODULES_MAX)
    }
    assert not too_large
