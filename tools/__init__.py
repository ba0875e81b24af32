"""Checks of the architecture; not part of the package."""
