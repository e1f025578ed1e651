"""The index file: its format, its kernels in Cython, and what its numbers stand for."""
