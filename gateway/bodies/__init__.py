"""Request bodies: compressed, received in parts, and large ones parsed by a separate process."""
