"""Providers of hosts: one module each, with NAME and `create(settings)`."""
