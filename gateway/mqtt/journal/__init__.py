"""Sessions and retained messages in the log, from which a new process restores them."""
