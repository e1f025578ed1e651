"""Error codes have the names and numbers that a broker of this package gives them."""

from __future__ import annotations

import re

from broker_core.errors import BrokerError
from waylog.kafka.protocol.error_codes import ErrorCode, reason_of


def test_names_and_numbers_are_those_of_the_broker() -> None:
    named = {
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", each.__name__).upper(): each.code
        for each in BrokerError.__subclasses__()
    }
    ours = {each.name: each.value for each in ErrorCode if each is not ErrorCode.MESSAGE_TIMED_OUT}
    assert ours == named


def test_a_code_is_told_in_words_and_an_unknown_one_by_its_number() -> None:
    assert reason_of(10) == "message too large"
    assert reason_of(ErrorCode.MESSAGE_TIMED_OUT) == "message timed out"
    assert reason_of(9999) == "error 9999"
