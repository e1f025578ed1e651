"""Vector tiles of an extract: what is in them, how they are made, and the archive's reader."""
