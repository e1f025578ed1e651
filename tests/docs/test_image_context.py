"""The files of the repository that would go into a container image."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def patterns(name: str) -> list[re.Pattern[str]]:
    """Parse a .dockerignore; `**` is any folders, and a folder stands for everything in it."""
    found = []
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            assert not line.startswith("!"), "what is ignored stays ignored"
            parts = re.split(r"(\*\*/|\*)", line.strip("/"))
            words = {"**/": "(?:.*/)?", "*": "[^/]*"}
            text = "".join(words.get(part, re.escape(part)) for part in parts)
            found.append(re.compile(text + "(?:/.*)?"))
    return found


@pytest.mark.parametrize("name", [".dockerignore", ".containerignore"])
def test_secrets_and_positions_do_not_go_into_an_image(name: str) -> None:
    ignored = patterns(name)

    def is_ignored(path: str) -> bool:
        return any(pattern.fullmatch(path) for pattern in ignored)

    for path in (
        *("data/demo.token", "data/users.db", "data/history/date=2026-01-01/x.parquet", "data"),
        *("anna.token", "deploy/anna.token", "users.db-wal", "master.key", "deploy/tls/server.pem"),
        *(".git/config", ".venv/bin/python", "build/x.o", ".env", "deploy/prod.env"),
        *("gateway/__pycache__/http.pyc", "gateway/known_fixes.so", ".mypy_cache/3.11/x.json"),
    ):
        assert is_ignored(path), path
    for path in (
        *("pyproject.toml", "setup.py", "deploy/setup.sh", "deploy/constraints.txt", "README.md"),
        *("waylog/cli.py", "gateway/web/index.html", "broker_core/log/log.py", "Makefile"),
    ):
        assert not is_ignored(path), path
