"""From a PUBLISH to the log."""
