"""What users agree to show: shares (links for people without an account), and what friends ask."""
