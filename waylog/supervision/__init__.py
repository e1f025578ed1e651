"""`waylog up` and its supervisor, which starts, watches and restarts the platform's processes."""
