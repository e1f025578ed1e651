"""What the gateway knows of each device, read from the log."""
