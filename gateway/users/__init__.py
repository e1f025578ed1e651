"""Users, credentials, rights and quotas."""
