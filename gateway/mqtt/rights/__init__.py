"""Who may publish and read what, asked at each message."""
