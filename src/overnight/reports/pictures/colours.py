"""Colours of the pictures, light and dark: the same as the viewer's (web/src/views/colours.ts)."""

from __future__ import annotations

from collections.abc import Sequence

# fmt: off
# From 1/16 to 16/16 of full; light, dark.
HEAT = (
    ("#ffebb7", "#ffdb9b", "#ffc981", "#ffb66a", "#ffa358", "#fc8f4d", "#f77c48", "#ef6949",
     "#e5584d", "#d84853", "#c93a59", "#b82f5e", "#a52761", "#922162", "#601b5a", "#221332"),
    ("#1a0f35", "#291245", "#3a1554", "#4c1760", "#5f1969", "#741c6f", "#882073", "#9d2674",
     "#af2d73", "#c23770", "#d2446c", "#e15469", "#ed6566", "#f77765", "#ffa877", "#ffeac3"),
)
# From vanished through unchanged to new; light, dark.
CHANGE = (
    ("#42a3fd", "#53a9fc", "#62affb", "#72b5f9", "#81bcf8", "#91c2f6", "#a2caf4", "#b5d2f1", "#dbdee3",
     "#edc5b3", "#efb79f", "#efab8d", "#efa07d", "#ef966e", "#ef8c5f", "#ee834f", "#ed7940"),
    ("#0071c7", "#026cbb", "#1368ae", "#1d63a1", "#245e94", "#2a5886", "#2e5276", "#324a64", "#3b3d41",
     "#603f30", "#70422c", "#7e4328", "#8a4522", "#96461c", "#a14613", "#ac4705", "#b64700"),
)
# fmt: on
# CSS class: property, light, dark.
INK = {
    ".g": ("fill", "#fdfdfc", "#14161a"),  # background
    ".m": ("fill", "#ffffff", "#0b0c0f"),  # background of the cells
    "text": ("fill", "#16181c", "#eceef2"),
    ".s": ("fill", "#555b66", "#a3aab6"),  # small print
    ".x": ("stroke", "#8c8f96", "#6d7480"),  # axes
    ".n": ("fill", "#c9cbd0", "#3a3f48"),  # not recorded
    ".b": ("stroke", "#fdfdfc", "#14161a"),  # between boxes
    ".o": ("stroke", "#16181c", "#eceef2"),  # outline of a box
    ".p": ("stroke", "#d6006c", "#ff5fae"),  # outline of a saturated run
    "text.critical": ("fill", "#c2121f", "#ff7a80"),
    "text.warning": ("fill", "#9a5b00", "#ffbf5e"),
    "text.info": ("fill", "#45618a", "#9fc1ef"),
    "g.critical": ("stroke", "#c2121f", "#ff7a80"),
    "g.warning": ("stroke", "#9a5b00", "#ffbf5e"),
    "g.info": ("stroke", "#45618a", "#9fc1ef"),
    ".v text": ("stroke", "none", "none"),
}


def style(prefix: str, what: str, scales: Sequence[Sequence[str]], first: int = 0) -> str:
    """Return CSS for the inks and a scale; without support for dark schemes, the light one applies."""
    schemes = []
    for number, scale in enumerate(scales, 1):
        rules = [f"{name}{{{ink[0]}:{ink[number]}}}" for name, ink in INK.items()]
        rules += [f".{prefix}{i}{{{what}:{colour}}}" for i, colour in enumerate(scale, first)]
        schemes.append("".join(rules))
    light, dark = schemes
    return f"{light}\n@media (prefers-color-scheme:dark){{{dark}}}"
