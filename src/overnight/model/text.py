"""Text that hosts wrote, made safe to show: process names, units, kernel lines."""

from __future__ import annotations

import math
import re

MAX_QUOTED = 60
WORD = re.compile(r"[A-Za-z0-9_.:/@+-]{1,64}")


def printable(text: str, *, keep: str = "", limit: int | None = None) -> str:
    r"""Escape what a terminal or a page would interpret; characters of `keep` stay.

    >>> printable("a\x1b[31mb\u202ec\n"), printable("a\n", keep="\n"), printable("abcdef", limit=3)
    ('a\\x1b[31mb\\u202ec\\n', 'a\n', 'abc…')
    """
    if limit is not None and len(text) > limit:
        text = text[:limit] + "…"
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape", "replace").decode()
        for c in text
    )


def quoted(text: str) -> str:
    r"""Quote text from elsewhere: it cannot end the quotation, nor seem to, and is cut.

    >>> print(quoted('night", costs 0\x1b \u201d'))
    "night\x22, costs 0\x1b \u201d" (text from elsewhere)
    """
    # ASCII alone: other characters look like a quotation mark, or like a letter of a known name.
    escaped = text[:MAX_QUOTED].encode("unicode_escape").decode().replace('"', r"\x22")
    return f'"{escaped}{"…" * (len(text) > MAX_QUOTED)}" (text from elsewhere)'


def foreign(text: str) -> str:
    """Return a short word without blanks as it is, quote any other text.

    >>> foreign("ci-job/17"), foreign("")
    ('ci-job/17', '"" (text from elsewhere)')
    """
    return text if WORD.fullmatch(text) else quoted(text)


def plural(number: int, noun: str) -> str:
    """Return the number with its noun, in the singular for one.

    >>> plural(1, "segment"), plural(0, "segment"), plural(1200, "cgroup")
    ('1 segment', '0 segments', '1200 cgroups')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def percent(share: float | None) -> str:
    """Format a share with two significant digits; a dash where it is not known.

    >>> percent(0.065), percent(0.0004), percent(None)
    ('6.5 %', '0.04 %', '-')
    """
    if share is None or not math.isfinite(share):
        return "-"
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %" if value < 1 else f"{value:.1f} %"


def rounded(value: float) -> str:
    """Format a rate or a ratio with two significant digits, from 100 on as a whole number.

    >>> rounded(3.14159), rounded(0.0312), rounded(1234.5), rounded(0)
    ('3.1', '0.031', '1,234', '0')
    """
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.2g}"


def host_time(hours: float) -> str:
    """Format time summed over hosts.

    >>> host_time(0.01), host_time(1.5), host_time(30), host_time(240)
    ('36 host-seconds', '90 host-minutes', '30 host-hours', '10 host-days')
    """
    for unit, size in (("days", 24.0), ("hours", 1.0), ("minutes", 1 / 60)):
        if hours >= 2 * size:
            return f"{rounded(hours / size)} host-{unit}"
    return f"{rounded(3600 * hours)} host-seconds"


def decode_octal(path: str) -> str:
    r"""Decode a path of /proc/mounts: the kernel writes blanks, newlines and backslashes in octal.

    >>> decode_octal("/a\\040b\\134")
    '/a b\\'
    """
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path)


def fraction(p: float) -> str:
    """Format a p; small ones as a fraction.

    >>> fraction(1 / 220), fraction(0.031), fraction(1.0)
    ('1/220', '0.031', '1')
    """
    return f"1/{round(1 / p):,}" if 0 < p < 0.01 else f"{p:.2g}"
