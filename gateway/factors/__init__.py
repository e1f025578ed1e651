"""What users prove who they are with besides a password: codes of an app, passkeys."""
