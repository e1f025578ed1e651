"""`python -m gateway.tracks.receipts_process SERVERS HISTORY GROUP [TOPIC...]`: answers receipts.

HISTORY may be empty; TOPICs are those of dead letters. A question on standard input is a line of
JSON (gateway.tracks.receipts.ReceiptQuestion), the answer a line (AnswerHead) and a receipt as
JSON. The process ends at the end of its input. However often it is asked, groups are asked for
their offsets every few seconds at most, and of each topic a bounded number of records is read.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections import OrderedDict
from typing import Final

import msgspec

from gateway.tracks.asking import AnswerHead, AnswerUnavailable
from gateway.tracks.receipts import ReceiptQuestion
from waylog.audit.audit import Auditor, NothingToAudit
from waylog.audit.forwarding_records import ForwardingRecords
from waylog.audit.history_rows import HistoryRows
from waylog.audit.log_reader import LogReader
from waylog.audit.positions import Positions, read_positions
from waylog.audit.question import Question
from waylog.config import ConfigError
from waylog.history.history_reader import HistoryUnreadable
from waylog.kafka.clients import LogUnreachable

#: Records of each topic that one question reads.
RECORDS_MAX: Final = 300_000
#: Seconds for which offsets of groups, and answers, hold.
_FRESH_S: Final = 5.0
_ANSWERS_MAX: Final = 256
_NICENESS: Final = 5


class Answerer:
    """Answers questions about a log and a history."""

    def __init__(
        self, servers: str, history: str, resolver_group: str, dead_letters: tuple[str, ...]
    ) -> None:
        self._servers = servers
        self._history_url = history
        self._group = resolver_group
        self._dead_letters = dead_letters
        self._log: LogReader | None = None
        self._history: HistoryRows | None = None
        self._positions: Positions | None = None
        self._forwardings: ForwardingRecords | None = None
        self._asked = 0.0
        self._answers: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()

    def answer(self, line: bytes) -> bytes:
        """Return a receipt as JSON. Raises AnswerUnavailable."""
        now = time.monotonic()
        known = self._answers.get(line)
        if known is not None and now - known[0] < _FRESH_S:
            return known[1]
        try:
            answer = self._answer(msgspec.json.decode(line, type=ReceiptQuestion))
        except (ConfigError, HistoryUnreadable, LogUnreachable, NothingToAudit, OSError) as error:
            self._forget()
            raise AnswerUnavailable(str(error)) from error
        self._answers[line] = (now, answer)
        self._answers.move_to_end(line)
        if len(self._answers) > _ANSWERS_MAX:
            self._answers.popitem(last=False)
        return answer

    def _answer(self, asked: ReceiptQuestion) -> bytes:
        if self._log is None:
            self._log = LogReader(self._servers)
        if self._forwardings is None:
            self._forwardings = ForwardingRecords(self._servers)
        if self._history is None and self._history_url:
            self._history = HistoryRows(self._history_url)
        if self._positions is None or time.monotonic() - self._asked >= _FRESH_S:
            self._positions = read_positions(self._log, self._history)
            self._asked = time.monotonic()
        auditor = Auditor(
            self._log,
            self._history,
            time.time_ns() // 1_000_000,
            positions=self._positions,
            forwardings=self._forwardings,
        )
        question = Question(
            asked.day,
            asked.device,
            resolver_group=self._group,
            dead_letters=self._dead_letters,
            records_max=RECORDS_MAX,
            reads_addresses=False,
            address=asked.address,
        )
        return msgspec.json.encode(auditor.answer(question).receipt(asked.device))

    def _forget(self) -> None:
        """Begin with new clients at the next question."""
        log, self._log = self._log, None
        self._history = self._positions = self._forwardings = None
        if log is not None:
            log.close()


def main(servers: str, history: str, resolver_group: str, *dead_letters: str) -> None:
    """Answer questions until the end of the input."""
    # Ctrl-C reaches the whole process group; this process ends when the gateway closes its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    answerer = Answerer(servers, history, resolver_group, dead_letters)
    questions, output = sys.stdin.buffer, sys.stdout.buffer
    while line := questions.readline():
        content = b""
        try:
            content = answerer.answer(line)
            head = AnswerHead(bytes=len(content))
        except AnswerUnavailable as error:
            head = AnswerHead(error=str(error) or type(error).__name__)
        except Exception:  # no content of a record or file may end the process
            traceback.print_exc()
            head = AnswerHead(error="it could not be read; the gateway's log has the details")
        output.write(msgspec.json.encode(head) + b"\n" + content)
        output.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
    # Threads of libraries that are still starting while the interpreter shuts down abort it.
    os._exit(0)
