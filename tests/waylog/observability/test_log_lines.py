"""What a process writes to its log when others choose the words."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = r"""
import logging
from waylog.observability.log_lines import configure_logging

configure_logging(line="%(levelname)s %(name)s: %(message)s")
logger = logging.getLogger("test")
forged = "x\r\nCRITICAL root: forged\u2028\x1b[31m\x00\ud800 é"
logger.info("a client %s left", forged)
logger.info("%d of %s", 1, {"name": forged})
logger.info(forged)
logger.info("%(name)s", {"name": forged})
logger.info("a client %s is refused: why", "y" * 40_000)
logger.info("%s", ["z" * 40_000])
try:
    raise ValueError(forged)
except ValueError:
    logger.exception("failed for %s", forged)
try:
    raise ValueError("\n" * 10_000 + "the last line")
except ValueError:
    logger.exception("failed again")
try:
    raise ValueError("w" * 40_000)
except ValueError:
    logger.exception("failed once more")
logger.info("not so long: %s", "v" * 1000)
logger.info("the end of %s", b"\n")
"""


def log() -> list[str]:
    """Return the lines of a process that logs what others have chosen."""
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    return process.stderr.decode().split("\n")


def test_no_text_looks_like_a_line_that_the_process_has_not_written() -> None:
    lines = log()
    assert not any(line.startswith(("CRITICAL", "root")) for line in lines)
    assert all(line.isprintable() for line in lines)
    escaped = r"x\r\nCRITICAL root: forged\u2028\x1b[31m\x00\ud800 é"
    assert lines[0] == f"INFO test: a client {escaped} left"
    assert lines[2] == lines[3] == f"INFO test: {escaped}"
    failed = lines.index(f"ERROR test: failed for {escaped}")
    assert lines[failed + 1] == "  Traceback (most recent call last):"
    # The text of an exception may have lines, but none where those of the log begin.
    message = lines.index(r"  ValueError: x\r", failed)
    assert lines[message + 1].startswith("  CRITICAL root: forged")
    assert lines[-2:] == [r"INFO test: the end of b'\n'", ""]


def test_long_texts_are_cut() -> None:
    lines = log()
    assert max(len(line) for line in lines) < 4000
    assert len(lines) < 250
    (cut,) = [line for line in lines if "is refused" in line]
    assert cut.startswith("INFO test: a client yyy")
    assert cut.endswith("y... (39000 more characters) is refused: why")
    assert "INFO test: not so long: " + "v" * 1000 in lines
    # What has failed is told by the first lines and the last ones.
    failed = lines.index("ERROR test: failed again")
    assert lines[failed + 1] == "  Traceback (most recent call last):"
    assert lines.index("  the last line") < lines.index("ERROR test: failed once more")
