"""From a PUBLISH packet to records in the log."""
