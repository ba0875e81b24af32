"""Demangles Rust names of both schemes: `_ZN...17h<hash>E` (legacy) and `_R...` (v0, RFC 2603)."""

from __future__ import annotations

import re
import string
from collections.abc import Callable

LEGACY_HASH = re.compile(r"17h[0-9a-f]{16}E")
LENGTH = re.compile(r"[1-9][0-9]{0,3}")
ESCAPE = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C|u[0-9a-f]{1,6})\$|\.\.|\.")
ESCAPES = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}

BASE_62 = {c: i for i, c in enumerate(string.digits + string.ascii_letters)}
BASIC = {
    "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8",
    "i": "isize", "j": "usize", "l": "i32", "m": "u32", "n": "i128", "o": "u128", "p": "_",
    "s": "i16", "t": "u16", "u": "()", "v": "...", "x": "i64", "y": "u64", "z": "!",
}  # fmt: skip
SIGNED, UNSIGNED = "aslxni", "htmyoj"

# A name may refer back to itself repeatedly, and so grow without end.
MAX_STEPS = 100_000  # letters read
MAX_DEPTH = 120


def demangle(name: str) -> str | None:
    """Return the path as written in Rust, without the hash; None if the name is not Rust's."""
    if name.startswith("_ZN"):
        return _legacy(name)
    if name.startswith("_R"):
        try:
            return _Path(name[2:].partition(".")[0]).text()
        except (ValueError, IndexError):
            return None
    return None


def _legacy(name: str) -> str | None:
    ending = LEGACY_HASH.search(name)
    if ending is None:
        return None
    parts = []
    at = 3
    while at < ending.start():
        digits = LENGTH.match(name, at)
        if digits is None:
            return None
        at = digits.end() + int(digits[0])
        part = name[digits.end() : at]
        parts.append(ESCAPE.sub(_unescape, part.removeprefix("_") if part[:2] == "_$" else part))
    return "::".join(parts) if at == ending.start() and parts else None


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code is None:
        return "::" if match[0] == ".." else "."
    if code in ESCAPES:
        return ESCAPES[code]
    point = int(code[1:], 16)
    return chr(point) if 0x20 <= point < 0xD800 or 0xE000 <= point < 0x110000 else match[0]


class _Path:
    """A reader of one v0 name, a method for each rule; ValueError or IndexError: it breaks the grammar."""

    def __init__(self, mangled: str) -> None:
        self._mangled = mangled
        self._at = 0
        self._steps = 0
        self._depth = 0
        self._lifetimes = 0

    def text(self) -> str:
        if not self._mangled[0].isupper():  # digits would be the version of a later scheme
            raise ValueError
        path = self._path(in_value=True)
        if self._at < len(self._mangled):
            self._path(in_value=False)  # the crate that instantiated the function
        if self._at < len(self._mangled):
            raise ValueError
        return path

    def _next(self) -> str:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise ValueError
        letter = self._mangled[self._at]
        self._at += 1
        return letter

    def _takes(self, letter: str) -> bool:
        if self._mangled[self._at : self._at + 1] == letter:
            self._at += 1
            return True
        return False

    def _number(self) -> int:
        if self._takes("_"):
            return 0
        value = 0
        while (letter := self._next()) != "_":
            if letter not in BASE_62 or value >> 64:
                raise ValueError
            value = value * 62 + BASE_62[letter]
        return value + 1

    def _optional_number(self, tag: str) -> int:
        return self._number() + 1 if self._takes(tag) else 0

    def _identifier(self) -> tuple[str, int]:
        disambiguator = self._optional_number("s")
        return self._plain_identifier(), disambiguator

    def _plain_identifier(self) -> str:
        foreign = self._takes("u")
        size = int(self._next())
        while size and self._mangled[self._at : self._at + 1].isdecimal():
            size = size * 10 + int(self._next())
            if size > len(self._mangled):
                raise ValueError
        self._takes("_")
        name = self._mangled[self._at : self._at + size]
        self._steps += size
        if len(name) < size:
            raise ValueError
        self._at += size
        if foreign:
            head, _, tail = name.rpartition("_")
            return (f"{head}-{tail}" if head else tail).encode("ascii").decode("punycode")
        return name

    def _again(self, rule: Callable[[], str]) -> str:
        """Read an earlier part of the name with the same rule."""
        reference = self._at - 1
        target = self._number()
        if target >= reference:
            raise ValueError
        resume = self._at
        self._at = target
        text = self._deeper(rule)
        self._at = resume
        return text

    def _deeper(self, rule: Callable[[], str]) -> str:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError
        text = rule()
        self._depth -= 1
        return text

    def _path(self, *, in_value: bool) -> str:
        return self._deeper(lambda: self._path_here(in_value=in_value))

    def _path_here(self, *, in_value: bool) -> str:
        tag = self._next()
        if tag == "C":
            return self._identifier()[0]
        if tag in "MXY":
            if tag != "Y":
                self._optional_number("s")
                self._path(in_value=in_value)
            subject = self._type()
            trait = "" if tag == "M" else " as " + self._path(in_value=False)
            return f"<{subject}{trait}>"
        if tag == "N":
            return self._nested(in_value=in_value)
        if tag == "I":
            path = self._path(in_value=in_value)
            return f"{path}{'::' if in_value else ''}<{', '.join(self._until_end(self._argument))}>"
        if tag == "B":
            return self._again(lambda: self._path(in_value=in_value))
        raise ValueError

    def _nested(self, *, in_value: bool) -> str:
        space = self._next()
        if not space.isalpha():
            raise ValueError
        path = self._path(in_value=in_value)
        name, number = self._identifier()
        if space.islower():
            return f"{path}::{name}" if name else path
        kind = {"C": "closure", "S": "shim"}.get(space, space)
        return f"{path}::{{{kind}{':' + name if name else ''}#{number}}}"

    def _until_end(self, rule: Callable[[], str]) -> list[str]:
        items = []
        while not self._takes("E"):
            items.append(rule())
        return items

    def _argument(self) -> str:
        if self._takes("L"):
            return self._lifetime(self._number())
        if self._takes("K"):
            return self._deeper(self._constant)
        return self._type()

    def _lifetime(self, number: int) -> str:
        if not number:
            return "'_"
        depth = self._lifetimes - number
        if depth < 0:
            raise ValueError
        return f"'{chr(ord('a') + depth)}" if depth < 26 else f"'_{depth}"

    def _type(self) -> str:
        return self._deeper(self._type_here)

    def _type_here(self) -> str:
        tag = self._next()
        if tag in BASIC:
            return BASIC[tag]
        if tag in "RQ":
            lifetime = self._number() if self._takes("L") else 0
            shown = self._lifetime(lifetime) + " " if lifetime else ""
            return f"&{shown}{'mut ' if tag == 'Q' else ''}{self._type()}"
        if tag in "PO":
            return f"*{'const' if tag == 'P' else 'mut'} {self._type()}"
        if tag == "A":
            element = self._type()
            return f"[{element}; {self._deeper(self._constant)}]"
        if tag == "S":
            return f"[{self._type()}]"
        if tag == "T":
            members = self._until_end(self._type)
            return f"({', '.join(members)}{',' if len(members) == 1 else ''})"
        if tag == "F":
            return self._bound(self._signature)
        if tag == "D":
            bounds = self._bound(lambda: " + ".join(self._until_end(self._dynamic)))
            if not self._takes("L"):
                raise ValueError
            lifetime = self._number()
            return f"dyn {bounds}" + (f" + {self._lifetime(lifetime)}" if lifetime else "")
        if tag == "B":
            return self._again(self._type)
        self._at -= 1
        return self._path(in_value=False)

    def _bound(self, rule: Callable[[], str]) -> str:
        """Read `for<'a> ...`: lifetimes that are valid within the rule."""
        count = self._optional_number("G")
        if count > 64:
            raise ValueError
        self._lifetimes += count
        names = [self._lifetime(count - i) for i in range(count)]
        text = rule()
        self._lifetimes -= count
        return (f"for<{', '.join(names)}> " if names else "") + text

    def _signature(self) -> str:
        unsafe = "unsafe " if self._takes("U") else ""
        abi = ""
        if self._takes("K"):
            name = "C" if self._takes("C") else self._plain_identifier().replace("_", "-")
            abi = f'extern "{name}" '
        arguments = ", ".join(self._until_end(self._type))
        result = "" if self._takes("u") else f" -> {self._type()}"
        return f"{unsafe}{abi}fn({arguments}){result}"

    def _dynamic(self) -> str:
        """Read a trait with its associated types: `Iterator<Item = u8>`."""
        path = self._path(in_value=False)
        bindings = []
        while self._takes("p"):
            name = self._plain_identifier()
            bindings.append(f"{name} = {self._type()}")
        if not bindings:
            return path
        if path.endswith(">") and not path.startswith("<"):
            return f"{path[:-1]}, {', '.join(bindings)}>"
        return f"{path}<{', '.join(bindings)}>"

    def _constant(self) -> str:
        tag = self._next()
        if tag == "B":
            return self._again(self._constant)
        if tag == "p":
            return "_"
        negative = tag in SIGNED and self._takes("n")
        digits = ""
        while (letter := self._next()) != "_":
            if letter not in "0123456789abcdef":
                raise ValueError
            digits += letter
        value = int(digits or "0", 16)
        if tag in SIGNED or tag in UNSIGNED:
            return ("-" if negative else "") + (str(value) if value >> 64 == 0 else f"0x{digits}")
        if tag == "b" and value < 2:
            return "true" if value else "false"
        if tag == "c" and value < 0x110000:
            return f"'{chr(value)}'"
        raise ValueError
