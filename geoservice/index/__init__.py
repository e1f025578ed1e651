"""The index file: its format, its lookup kernels in Cython, and the meaning of its numbers."""
