"""Rights to publish and read, checked for each message."""
