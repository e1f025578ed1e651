"""Where Spark may keep its offsets."""

from __future__ import annotations

from waylog.config import ConfigError


def check_checkpoint(out: str, checkpoint: str | None) -> None:
    """Raises ConfigError where Spark cannot write beside what it writes to `out` (a URL)."""
    if checkpoint is None and out.startswith("webhdfs://"):
        # Spark's own client of that interface lacks a class in the packages of PyPI.
        raise ConfigError(
            f"{out}: name a --checkpoint that Spark can write to, such as "
            "hdfs://NAMENODE:8020/waylog-checkpoint, or use --engine arrow"
        )
