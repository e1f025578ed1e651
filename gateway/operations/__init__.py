"""What administrators see of the log and the platform, and change of it."""
