"""Demangles names of C++, Rust and OCaml.

The form is that of `perf script`: no parameters, no return type, no suffix of a compiler's clone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from overnight.ingest.symbols import cplusplus, rust

# Longer names exist in template-heavy programs, and are unreadable in either form.
MAX_LENGTH = 4096
EXPECTED = "_Z"  # the prefix of names that are worth announcing with `expect`

RUST_HASH = re.compile(r"17h[0-9a-f]{16}E")  # at the end of Rust's older names, which look like C++
OCAML = re.compile(r"caml[A-Z]")
OCAML_PART = re.compile(r"__|\$([0-9a-fA-F]{2})")


def readable(name: str) -> str:
    """Return the name that perf would show; the name itself where no mangling scheme matches."""
    plain = name.removesuffix("@plt")
    return _plain(plain) + name[len(plain) :]


def expect(names: Iterable[str]) -> None:
    """Announce the next names for `readable`, to demangle them in one batch."""
    plain = (name.removesuffix("@plt") for name in names)
    cplusplus.expect(
        name for name in plain if len(name) <= MAX_LENGTH and not RUST_HASH.search(name)
    )


def _plain(name: str) -> str:
    if len(name) > MAX_LENGTH:
        return name
    demangled = None
    if name.startswith(("_R", "_ZN")):
        demangled = rust.demangle(name)
    if demangled is None and name.startswith("_Z"):
        demangled = cplusplus.demangle(name)
    if demangled is None and OCAML.match(name):
        return OCAML_PART.sub(lambda part: chr(int(part[1], 16)) if part[1] else ".", name[4:])
    return name if demangled is None else demangled
