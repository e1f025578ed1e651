"""Share groups on the log (KIP-932)."""
