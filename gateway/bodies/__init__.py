"""Bodies of requests: compressed, in parts, and large ones read by a process of their own."""
