"""`waylog up` and its supervisor: starts, watches and restarts the processes of a platform."""
