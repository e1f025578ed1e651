"""Numbers as Java writes and reads them, which reaches keys, headers and topics of Connect."""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal
from typing import Final

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
#: What `String.trim` removes.
TRIMMED: Final = "".join(map(chr, range(33)))
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
)
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_FLOAT32: Final = struct.Struct(">f")
_PLAIN_MIN: Final = 1e-3
_PLAIN_MAX: Final = 1e7


def to_float32(value: float) -> float:
    """Return the nearest value that fits 32 bits; infinite if it is too large."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def float64_text(value: float) -> str:
    """Return the text of Java's `Double.toString`: 1.0, 1.0E10, NaN, -Infinity."""
    return _text(value, repr(value))


def float32_text(value: float) -> str:
    """Return the text of Java's `Float.toString`: the shortest that names these 32 bits."""
    value = to_float32(value)
    if math.isfinite(value):
        for digits in range(1, 10):
            shortest = f"{value:.{digits}g}"
            if to_float32(float(shortest)) == value:
                return _text(value, shortest)
    return _text(value, repr(value))


def _text(value: float, shortest: str) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1.0, value) < 0 else "0.0"
    number = Decimal(shortest)
    if _PLAIN_MIN <= abs(value) < _PLAIN_MAX:
        plain = f"{number:f}"
        return plain if "." in plain else plain + ".0"
    sign, digits, _ = number.as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{number.adjusted()}"


def wrap(value: int, bits: int) -> int:
    """Return the lowest bits of a number as Java's narrowing conversion reads them."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def truncate(value: float, bits: int) -> int:
    """Return a number without its fraction as Java's cast does (JLS 5.1.3).

    NaN is 0. What is too large becomes the largest of 32 or 64 bits; narrower types take the
    lowest bits of that.
    """
    if math.isnan(value):
        return 0
    limit = 1 << (max(bits, 32) - 1)
    if value >= limit:
        whole = limit - 1
    elif value <= -limit:
        whole = -limit
    else:
        whole = int(value)
    return wrap(whole, bits)


def integer_of_decimal(value: Decimal) -> int:
    """Return the lowest 64 bits of a finite decimal without its fraction (`longValue`)."""
    if value.adjusted() < 0:
        return 0
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "only finite decimals have a number as exponent"
    if exponent >= 64:
        # A multiple of 10**64 is one of 2**64. The number itself may have a billion digits.
        return 0
    return wrap(int(value), 64)


def fits(number: int, bits: int) -> bool:
    """Return whether a signed type of so many bits has the number."""
    return -(1 << (bits - 1)) <= number < 1 << (bits - 1)


def parse_integer(text: str, bits: int) -> int | None:
    """Return the number that `Long.parseLong` and its kin read; None for a text that is none, or
    does not fit.
    """
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if fits(number, bits) else None


def parse_double(text: str) -> float | None:
    """Return the number that `Double.parseDouble` reads, None for a text that is none."""
    trimmed = text.strip(TRIMMED)
    return float(trimmed.rstrip("fFdD")) if _DOUBLE.fullmatch(trimmed) is not None else None


def parse_decimal(text: str) -> Decimal | None:
    """Return the number that `new BigDecimal` reads, None for a text that is none."""
    return Decimal(text) if _DECIMAL.fullmatch(text) is not None else None
