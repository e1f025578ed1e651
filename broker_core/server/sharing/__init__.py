"""Share groups on the server (KIP-932)."""
