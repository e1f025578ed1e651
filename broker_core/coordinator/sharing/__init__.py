"""State machines of share groups (KIP-932)."""
