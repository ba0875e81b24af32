"""Constant-footprint load, and state that is put on hosts before a recording."""
