"""Rows of investigations."""
