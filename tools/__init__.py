"""What checks the house itself; not part of the package."""
