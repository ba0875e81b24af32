"""From recorded files to stored segments: reading formats and finding names for addresses."""
