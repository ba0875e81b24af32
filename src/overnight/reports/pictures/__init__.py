"""Answers that are no stacks, as still pictures: SVG without scripts, for light and dark."""
