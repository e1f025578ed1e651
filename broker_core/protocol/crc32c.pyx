"""CRC-32C (Castagnoli, RFC 3720 appendix B.4) over any memory, without the GIL.

google-crc32c accepts `bytes` only: a batch in a receive buffer would have to be copied first.
This code runs three interleaved streams of the processor's crc32 instruction, since a single
stream waits three cycles for each result. Tables that append zero bytes to a CRC join the
streams. Processors without SSE 4.2 use eight table look-ups for eight bytes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define CRC32C_LONG 2048
    #define CRC32C_SHORT 256

    static uint32_t crc32c_slice[8][256];
    static uint32_t crc32c_long_zeros[4][256];
    static uint32_t crc32c_short_zeros[4][256];
    static int crc32c_hardware = 0;

    static uint32_t crc32c_by_table(uint32_t crc, const unsigned char *data, size_t size) {
        while (size >= 8) {
            uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8
                                  | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
            crc = crc32c_slice[7][low & 255] ^ crc32c_slice[6][low >> 8 & 255]
                ^ crc32c_slice[5][low >> 16 & 255] ^ crc32c_slice[4][low >> 24]
                ^ crc32c_slice[3][data[4]] ^ crc32c_slice[2][data[5]]
                ^ crc32c_slice[1][data[6]] ^ crc32c_slice[0][data[7]];
            data += 8;
            size -= 8;
        }
        while (size--)
            crc = crc >> 8 ^ crc32c_slice[0][(crc ^ *data++) & 255];
        return crc;
    }

    /* Tables that answer the CRC after `size` further zero bytes, one byte of the CRC at a time. */
    static void crc32c_make_zeros(uint32_t table[4][256], size_t size) {
        uint32_t bit[32];
        int i, j, k;
        for (i = 0; i < 32; i++) {
            uint32_t crc = (uint32_t)1 << i;
            size_t n;
            for (n = 0; n < size; n++)
                crc = crc >> 8 ^ crc32c_slice[0][crc & 255];
            bit[i] = crc;
        }
        for (i = 0; i < 4; i++)
            for (j = 0; j < 256; j++) {
                uint32_t crc = 0;
                for (k = 0; k < 8; k++)
                    if (j >> k & 1)
                        crc ^= bit[8 * i + k];
                table[i][j] = crc;
            }
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>

    static inline uint32_t crc32c_append_zeros(uint32_t table[4][256], uint64_t crc) {
        return table[0][crc & 255] ^ table[1][crc >> 8 & 255]
             ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24 & 255];
    }

    __attribute__((target("sse4.2")))
    static inline uint64_t crc32c_word(uint64_t crc, const unsigned char *data) {
        uint64_t word;
        memcpy(&word, data, 8);
        return _mm_crc32_u64(crc, word);
    }

    __attribute__((target("sse4.2")))
    static uint64_t crc32c_three(
        uint64_t crc, const unsigned char *data, size_t block, uint32_t table[4][256]
    ) {
        uint64_t second = 0, third = 0;
        size_t i;
        for (i = 0; i < block; i += 8) {
            crc = crc32c_word(crc, data + i);
            second = crc32c_word(second, data + block + i);
            third = crc32c_word(third, data + 2 * block + i);
        }
        crc = crc32c_append_zeros(table, crc) ^ second;
        return crc32c_append_zeros(table, crc) ^ third;
    }

    __attribute__((target("sse4.2")))
    static uint32_t crc32c_by_instruction(uint32_t start, const unsigned char *data, size_t size) {
        uint64_t crc = start;
        while (size >= 3 * CRC32C_LONG) {
            crc = crc32c_three(crc, data, CRC32C_LONG, crc32c_long_zeros);
            data += 3 * CRC32C_LONG;
            size -= 3 * CRC32C_LONG;
        }
        while (size >= 3 * CRC32C_SHORT) {
            crc = crc32c_three(crc, data, CRC32C_SHORT, crc32c_short_zeros);
            data += 3 * CRC32C_SHORT;
            size -= 3 * CRC32C_SHORT;
        }
        for (; size >= 8; data += 8, size -= 8)
            crc = crc32c_word(crc, data);
        while (size--)
            crc = _mm_crc32_u8((uint32_t)crc, *data++);
        return (uint32_t)crc;
    }

    static int crc32c_has_instruction(void) { return __builtin_cpu_supports("sse4.2") != 0; }
    #else
    #define crc32c_by_instruction crc32c_by_table
    static int crc32c_has_instruction(void) { return 0; }
    #endif

    static void crc32c_initialise(int use_instruction) {
        int i, k;
        for (i = 0; i < 256; i++) {
            uint32_t crc = (uint32_t)i;
            for (k = 0; k < 8; k++)
                crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
            crc32c_slice[0][i] = crc;
        }
        for (i = 0; i < 256; i++)
            for (k = 1; k < 8; k++)
                crc32c_slice[k][i] = crc32c_slice[k - 1][i] >> 8
                                   ^ crc32c_slice[0][crc32c_slice[k - 1][i] & 255];
        crc32c_make_zeros(crc32c_long_zeros, CRC32C_LONG);
        crc32c_make_zeros(crc32c_short_zeros, CRC32C_SHORT);
        crc32c_hardware = use_instruction && crc32c_has_instruction();
    }

    static uint32_t crc32c_extend(uint32_t crc, const unsigned char *data, size_t size) {
        return ~(crc32c_hardware ? crc32c_by_instruction(~crc, data, size)
                                 : crc32c_by_table(~crc, data, size));
    }

    static uint32_t crc32c_extend_by_table(uint32_t crc, const unsigned char *data, size_t size) {
        return ~crc32c_by_table(~crc, data, size);
    }
    """
    void initialise "crc32c_initialise"(bint use_instruction) noexcept nogil
    uint32_t extend "crc32c_extend"(
        uint32_t crc, const unsigned char *data, size_t size
    ) noexcept nogil
    uint32_t extend_by_table "crc32c_extend_by_table"(
        uint32_t crc, const unsigned char *data, size_t size
    ) noexcept nogil

initialise(True)


cdef uint32_t crc32c_extend(uint32_t crc, const unsigned char *data, size_t size) noexcept nogil:
    return extend(crc, data, size)


def crc32c(data, value=0, *, by_table=False):
    """Return the CRC-32C of a buffer, continued from `value`.

    `by_table` forces the method for processors without the crc32 instruction.
    """
    cdef Py_buffer view
    cdef uint32_t crc = value
    cdef bint table = by_table
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            if table:
                crc = extend_by_table(crc, <const unsigned char *>view.buf, view.len)
            else:
                crc = extend(crc, <const unsigned char *>view.buf, view.len)
        return crc
    finally:
        PyBuffer_Release(&view)
