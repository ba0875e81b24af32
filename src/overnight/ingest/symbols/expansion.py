"""How long a C++ name would become, before anybody makes it.

A mangled name refers back to its own parts (`S1_`): 250 letters can stand for gigabytes, and the
C++ library would write them all.
"""

from __future__ import annotations

import dataclasses
import re

__all__ = ["expansion"]

TOKEN = re.compile(r"L[a-z]n?\d+E|L_Z|(\d{1,4})|([ST][0-9A-Z]*_)|([INJXFL])|(E)|.", re.DOTALL)


@dataclasses.dataclass
class _Bracket:
    kind: str = ""
    length: int = 0
    latest: int = 0  # the part that a reference may name, where parts do not follow each other

    def part(self) -> int:
        return self.length if self.kind == "N" else self.latest


def expansion(mangled: str) -> int:
    """At least an eighth of the letters that `mangled`, which begins with `_Z`, stands for.

    Each reference counts as the longest part before it. Of the 307,000 C++ names of node, LLVM,
    DuckDB and libstdc++ none came out too low, and 0.2 % above a million.
    """
    at = 2
    longest = 1
    brackets = [_Bracket()]
    while at < len(mangled):
        token = TOKEN.match(mangled, at)
        assert token
        at = token.end()
        name, reference, opening, closing = token.groups()
        if opening:
            brackets.append(_Bracket(opening))
            continue
        length = 1
        if name:
            length = int(name)
            at += length
        elif reference:
            length = longest
        elif closing:
            if len(brackets) == 1:
                continue
            closed = brackets.pop()
            length = closed.length
            if closed.kind == "I":  # arguments belong to the template before them
                brackets[-1].length += length
                brackets[-1].latest += length
                longest = max(longest, brackets[-1].part())
                continue
        bracket = brackets[-1]
        bracket.length += length
        single = length == 1 and not name
        bracket.latest = bracket.latest + 1 if single else length
        longest = max(longest, bracket.part())
    return longest + sum(bracket.length for bracket in brackets)
