"""What is changed on hosts, and how it is always given back."""
