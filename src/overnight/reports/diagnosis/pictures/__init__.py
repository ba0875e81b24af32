"""Pictures inside the page: SVG parts that take their colours from its style, each with a text beside it."""
