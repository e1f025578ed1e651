"""SipHash (Aumasson and Bernstein, 2012): a keyed hash of short texts.

Without the key nobody can choose texts whose hashes collide. SipHash-1-3 has one round for each
word and three at the end, like Python's own hash of strings.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    const int PY_LITTLE_ENDIAN
    uint64_t __builtin_bswap64(uint64_t value) nogil


cdef struct SipKey:
    uint64_t first
    uint64_t second


cdef struct SipState:
    uint64_t v0
    uint64_t v1
    uint64_t v2
    uint64_t v3


cdef inline uint64_t rotated(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void sip_round(SipState* state) noexcept nogil:
    state.v0 += state.v1
    state.v2 += state.v3
    state.v1 = rotated(state.v1, 13) ^ state.v0
    state.v3 = rotated(state.v3, 16) ^ state.v2
    state.v0 = rotated(state.v0, 32)
    state.v2 += state.v1
    state.v0 += state.v3
    state.v1 = rotated(state.v1, 17) ^ state.v2
    state.v3 = rotated(state.v3, 21) ^ state.v0
    state.v2 = rotated(state.v2, 32)


cdef inline uint64_t little_endian_word(const char* at) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, at, sizeof(word))
    return word if PY_LITTLE_ENDIAN else __builtin_bswap64(word)


cdef inline SipKey sip_key(const char* sixteen_bytes) noexcept nogil:
    cdef SipKey key
    key.first = little_endian_word(sixteen_bytes)
    key.second = little_endian_word(sixteen_bytes + 8)
    return key


cdef inline uint64_t siphash(
    const SipKey* key, const char* text, Py_ssize_t size, int word_rounds, int last_rounds
) noexcept nogil:
    cdef SipState state
    cdef Py_ssize_t at
    cdef int each
    cdef uint64_t word
    state.v0 = key.first ^ <uint64_t> 0x736F6D6570736575ULL
    state.v1 = key.second ^ <uint64_t> 0x646F72616E646F6DULL
    state.v2 = key.first ^ <uint64_t> 0x6C7967656E657261ULL
    state.v3 = key.second ^ <uint64_t> 0x7465646279746573ULL
    for at in range(0, size - 7, 8):
        word = little_endian_word(text + at)
        state.v3 ^= word
        for each in range(word_rounds):
            sip_round(&state)
        state.v0 ^= word
    word = <uint64_t> (size & 0xFF) << 56
    for each in range(<int> (size & 7)):
        word |= <uint64_t> (<unsigned char> text[(size & ~<Py_ssize_t> 7) + each]) << (8 * each)
    state.v3 ^= word
    for each in range(word_rounds):
        sip_round(&state)
    state.v0 ^= word
    state.v2 ^= 0xFF
    for each in range(last_rounds):
        sip_round(&state)
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3


cdef inline uint64_t siphash13(const SipKey* key, const char* text, Py_ssize_t size) noexcept nogil:
    return siphash(key, text, size, 1, 3)
