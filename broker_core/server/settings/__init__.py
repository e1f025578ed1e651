"""Settings that clients read and change while the broker runs."""
