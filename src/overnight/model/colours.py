"""Colours of kernel and user code: one definition for terminal, pictures, reports and the viewer page.

The viewer page computes the fills again (web/src/views/colours.ts); web/tests/frame_colours.json, which tests
of both read, keeps them equal.
"""

from __future__ import annotations

import math

from overnight.model.flame import FrameKind

# Rich styles: names of the terminal's own palette stay readable on light and dark.
TERMINAL = {FrameKind.USER: "yellow", FrameKind.KERNEL: "bright_blue", FrameKind.PROCESS: "bold"}
HUES = {FrameKind.USER: (50, 40), FrameKind.KERNEL: (235, 25)}  # degrees of OKLCH: first, span


def fill(kind: int, module: str = "", name: str = "") -> str:
    """Return the fill of a frame, light enough for dark text: hue by module, lightness by name."""
    light = _shade(name)
    if kind == FrameKind.PROCESS:
        return oklch(0.88, 0.012, 260)
    first, span = HUES[FrameKind(kind)]
    hue = first + span * _shade(module)
    if kind == FrameKind.KERNEL:
        return oklch(0.78 + 0.08 * light, 0.085, hue)
    return oklch(0.84 + 0.08 * light, 0.08 + 0.02 * light, hue)


def ink(kind: FrameKind) -> tuple[str, str]:
    """Return the colour of bars, light and dark; kernel and user also differ in lightness, for grey prints."""
    first, span = HUES[kind]
    light, dark = (0.48, 0.76) if kind == FrameKind.KERNEL else (0.83, 0.47)
    return oklch(light, 0.11, first + span / 2), oklch(dark, 0.09, first + span / 2)


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """Return an OKLCH colour as sRGB, cut to the gamut."""
    a, b = (chroma * part(math.radians(hue)) for part in (math.cos, math.sin))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.707614701 * short,
    )
    cut = (min(1.0, max(0.0, value)) for value in linear)
    bent = (12.92 * v if v <= 0.0031308 else 1.055 * v ** (1 / 2.4) - 0.055 for v in cut)
    return "#" + "".join(f"{math.floor(255 * value + 0.5):02x}" for value in bent)


def _shade(text: str) -> float:
    """Return a number from 0 to 1 that depends on the text only (FNV-1a over UTF-16)."""
    units = text.encode("utf-16-le", "surrogatepass")[:512]
    value = 2166136261
    for at in range(0, len(units), 2):
        value = (value ^ int.from_bytes(units[at : at + 2], "little")) * 16777619 & 0xFFFFFFFF
    return (value >> 8) / 16777216
