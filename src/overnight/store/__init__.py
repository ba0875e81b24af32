"""The data home: append-only and versioned. Its writers may be killed at any time."""
