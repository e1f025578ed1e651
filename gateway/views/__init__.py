"""Views: the current state of each device, read from the log."""
