"""Pictures of everything but stacks: SVG without scripts, for light and dark."""
