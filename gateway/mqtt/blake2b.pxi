# BLAKE2b with a digest of six bytes (RFC 7693), as waylog.messages.fix_id asks hashlib for; a
# part of fixes.pyx. Of the 0.4 us that takes 0.1 are the digest, the rest are Python's objects.

cdef enum:
    BLOCK_BYTES = 128
    DIGEST_BYTES = 6

cdef uint64_t[8] BLAKE2B_START = [
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
]

cdef unsigned char[12][16] BLAKE2B_ORDER = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
]


cdef inline uint64_t rotated(uint64_t value, int bits) noexcept:
    return value >> bits | value << (64 - bits)


cdef inline void mix(
    uint64_t* v, int a, int b, int c, int d, uint64_t x, uint64_t y
) noexcept:
    v[a] += v[b] + x
    v[d] = rotated(v[d] ^ v[a], 32)
    v[c] += v[d]
    v[b] = rotated(v[b] ^ v[c], 24)
    v[a] += v[b] + y
    v[d] = rotated(v[d] ^ v[a], 16)
    v[c] += v[d]
    v[b] = rotated(v[b] ^ v[c], 63)


cdef void compress(
    uint64_t* state, const unsigned char* block, uint64_t hashed, bint last
) noexcept:
    cdef uint64_t[16] v
    cdef uint64_t[16] m
    cdef const unsigned char* s
    cdef int index
    memcpy(m, block, BLOCK_BYTES)  # little-endian, as the machines are that we run on
    for index in range(8):
        v[index] = state[index]
        v[index + 8] = BLAKE2B_START[index]
    v[12] ^= hashed
    if last:
        v[14] = ~v[14]
    for index in range(12):
        s = BLAKE2B_ORDER[index]
        mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]])
        mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]])
        mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]])
        mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]])
        mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]])
        mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]])
        mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]])
        mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]])
    for index in range(8):
        state[index] ^= v[index] ^ v[index + 8]


cdef void put_digest(char* out, const char* text, Py_ssize_t size) noexcept:
    """hashlib.blake2b(text, digest_size=6).hexdigest(), twelve characters."""
    cdef uint64_t[8] state
    cdef unsigned char[BLOCK_BYTES] block
    cdef Py_ssize_t done = 0
    cdef unsigned char byte
    cdef int index
    memcpy(state, BLAKE2B_START, sizeof(state))
    state[0] ^= 0x01010000 ^ DIGEST_BYTES
    while size - done > BLOCK_BYTES:
        compress(state, <const unsigned char*> text + done, done + BLOCK_BYTES, False)
        done += BLOCK_BYTES
    memset(block, 0, BLOCK_BYTES)
    memcpy(block, text + done, size - done)
    compress(state, block, size, True)
    for index in range(DIGEST_BYTES):
        byte = (<unsigned char*> state)[index]
        out[2 * index] = b"0123456789abcdef"[byte >> 4]
        out[2 * index + 1] = b"0123456789abcdef"[byte & 15]
