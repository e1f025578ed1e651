"""The check of the folder in which Spark keeps its offsets."""

from __future__ import annotations

from waylog.config import ConfigError


def check_checkpoint(out: str, checkpoint: str | None) -> None:
    """Raise ConfigError if Spark cannot write its checkpoint to `out` (a URL)."""
    if checkpoint is None and out.startswith("webhdfs://"):
        # Spark's own client of WebHDFS lacks a class in the packages of PyPI.
        raise ConfigError(
            f"{out}: name a --checkpoint that Spark can write to, such as "
            "hdfs://NAMENODE:8020/waylog-checkpoint, or use --engine arrow"
        )
