"""The APIs of logins, users and rights."""
