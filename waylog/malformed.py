"""What decoding raises for bytes that anybody may have written."""

from __future__ import annotations

from typing import Final

import msgspec

#: For `except`. msgspec raises UnicodeDecodeError, a ValueError, for text that is not UTF-8, and
#: RecursionError for what is nested too deeply; neither is a DecodeError.
MALFORMED: Final = (msgspec.DecodeError, ValueError, RecursionError)
