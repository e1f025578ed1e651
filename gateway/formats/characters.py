"""Characters that no name may contain: MQTT clients close the connection when they receive one."""

from __future__ import annotations

import re
from typing import Final

#: U+0001..U+001F, U+007F..U+009F and U+0000, as part of a character class of `re`.
CONTROL_CHARACTERS: Final = "\\x00-\\x1f\\x7f-\\x9f"
#: Noncharacters (the Unicode Standard, section 23.7), likewise.
NONCHARACTERS: Final = "\\ufdd0-\\ufdef" + "".join(
    f"\\U{plane << 16 | low:08x}" for plane in range(17) for low in (0xFFFE, 0xFFFF)
)
#: Characters that the name of a device cannot contain. They include the MQTT level separator and
#: wildcards, and lone surrogates, which stand for bytes that are not UTF-8.
FORBIDDEN_IN_NAMES: Final = rf" /+#\ud800-\udfff{CONTROL_CHARACTERS}{NONCHARACTERS}"

_FORBIDDEN: Final = re.compile(f"[{FORBIDDEN_IN_NAMES}]+")


def chosen_name(text: str) -> str:
    """Return the name of a device that a person has given it, with `_` for what it cannot have."""
    return _FORBIDDEN.sub("_", text.strip())
