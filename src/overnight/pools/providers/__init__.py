"""Providers of machines: one module each, with NAME and `create(home)`."""
