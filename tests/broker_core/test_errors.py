"""The table of errors, compared with kio's, which is generated from Kafka's definitions."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker_core import errors
from broker_core.errors import BrokerError, KafkaStorageError, UnknownServerError, error_for_code


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.value != errors.NONE])
def test_every_code_of_kafka_has_an_error_of_its_name(code: ErrorCode) -> None:
    error = error_for_code(code.value)
    name = code.name.replace("_", "")
    assert error.code == code.value
    assert error.retriable == code.retriable
    assert error.__name__.lower() in {name, name.removesuffix("exception")}
    assert getattr(errors, error.__name__) is error


def test_a_code_that_kafka_has_not_is_an_unknown_server_error() -> None:
    assert error_for_code(9999) is UnknownServerError


def test_an_error_without_a_text_explains_itself() -> None:
    assert str(errors.OffsetOutOfRange()).startswith("The requested offset is not within")
    assert str(errors.OffsetOutOfRange("offset 7 is not in 0..3")) == "offset 7 is not in 0..3"
    assert str(KafkaStorageError("disk full")) == "disk full"


def test_storage_errors_are_also_errors_of_the_system() -> None:
    with pytest.raises(OSError, match="disk full"):
        raise KafkaStorageError("disk full")
    assert issubclass(KafkaStorageError, BrokerError)
