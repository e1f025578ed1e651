from typing import Final

KEY_BYTES: Final = 16

def hash_of(key: bytes, text: bytes, word_rounds: int = 1, last_rounds: int = 3) -> int:
    """Return the hash as an unsigned 64-bit integer; raises ValueError for a wrong key length."""
