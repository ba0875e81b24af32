"""What overnight keeps: append-only, versioned, safe to cut off at any moment."""
