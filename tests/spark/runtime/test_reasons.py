"""The line that is told of an error of Spark."""

from __future__ import annotations

import pytest

from spark.runtime.reasons import reason_of

_OF_A_TASK = """An error occurred while calling o99.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 \
times, most recent failure: Lost task 0.0 in stage 0.0 (TID 0): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
    ^^^^^^^^^
waylog.history.storage_errors.StorageUnavailable: webhdfs://h:1/x: h:1: Connection refused

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(P.scala:5)
Caused by: java.io.EOFException: of no interest
"""
_OF_A_BATCH = """[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: \
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach \
batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most \
recent call last):
  File "/x/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
pyspark.errors.exceptions.captured.IllegalArgumentException: timeout value is negative
 SQLSTATE: 39000"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_OF_A_TASK, "webhdfs://h:1/x: h:1: Connection refused"),
        (_OF_A_BATCH, "IllegalArgumentException: timeout value is negative"),
        (
            "An error occurred while calling o57.load.\n: java.net.ConnectException: refused\n",
            "ConnectException: refused",
        ),
        (
            "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: Python worker "
            "failed to connect back. SQLSTATE: XXKST\n=== Streaming Query ===\n",
            "Python worker failed to connect back",
        ),
        ("127.0.0.1:1: the log did not answer", "127.0.0.1:1: the log did not answer"),
        ("An error occurred while calling o57.load.", "RuntimeError"),
        ("", "RuntimeError"),
    ],
)
def test_the_line_at_the_bottom_is_told(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason
