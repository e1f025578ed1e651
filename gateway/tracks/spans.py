"""What statistics are added up by; without numpy, since a gateway imports it at its start."""

from __future__ import annotations

from typing import Final

SPANS: Final = ("day", "week", "month", "year")
