from libc.stdint cimport uint32_t


# Continues a CRC from `crc`; a new one begins with 0.
cdef uint32_t crc32c_extend(uint32_t crc, const unsigned char *data, size_t size) noexcept nogil
