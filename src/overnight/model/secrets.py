"""Masking of values that are secret by their name or look random."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter

MASK = "(masked)"
NAMES = re.compile(
    r"pass(word|wd|phrase|code)|(^|[^a-z])pass($|[^a-z])|pwd|secret|token|credential|private|psk|api_?key|access_?key|"
    r"auth(?!or)|cookie|bearer|signature|licen[cs]e_?key|(^|[^a-z])(key|pin|otp|salt|nonce)s?($|[^a-z])|_key$|keyring|hash_?key|rss_?key|fastopen_key",
    re.IGNORECASE,
)
SHAPES = re.compile(
    r"AKIA[0-9A-Z]{12,}|ASIA[0-9A-Z]{12,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_|xox[abprs]-|eyJ[A-Za-z0-9_-]{8,}\.|"
    r"-----BEGIN|AIza[0-9A-Za-z_-]{20,}|(?<![A-Za-z])sk-[A-Za-z0-9_-]{16,}|glpat-|hv[sb]\.[A-Za-z0-9]{12,}|\$[0-9a-z]{1,2}\$[^ ]{8,}"
)
USER_INFO = re.compile(r"(://)[^/\s]+@")
# Of a query, or of the words of libpq: `host=db password=…`.
QUERY = re.compile(r"(?P<key>(?:^|[?&;\s])[^?&;=@:/\s]+\s*=)")
TOKEN = re.compile(r"[A-Za-z0-9+/_=-]{16,}")
PARTING = re.compile(r"[/_-]")
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
HEX = re.compile(r"[0-9a-fA-F]{24,}")
# `key=value` and `key: value` in a text: the key decides about the value.
KEY = re.compile(r"(?<![A-Za-z0-9_.\-])(?P<key>[A-Za-z0-9_.\-]+)\s*[=:]\s*")
VALUE = re.compile(r"""(?P<value>"[^"]*"|'[^']*'|[^\s,;&]+)""")

# `--password value`, as in kernel.core_pattern's command, or as a list: `['--password', 'value']`.
OPTION = re.compile(
    r"""(?P<key>(?<![^\s'"(\[])--?[A-Za-z][A-Za-z0-9_-]*)(?P<is>['"]?,?\s+)(?P<value>[^\s-]\S*)"""
)


def named_secret(name: str) -> bool:
    """Return whether a name marks its value as secret.

    >>> named_secret("net.ipv4.tcp_fastopen_key"), named_secret("vm.swappiness"), named_secret("passive")
    (True, False, False)
    """
    return bool(NAMES.search(name))


def looks_secret(text: str) -> bool:
    """Return whether a text holds something random: a key, a token, a hash.

    >>> looks_secret("wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"), looks_secret("quiet splash ro")
    (True, False)
    """
    if SHAPES.search(text):
        return True
    bare = UUID.sub("", text)
    return any(_random(match[0]) for match in TOKEN.finditer(bare))


def _random(token: str) -> bool:
    if HEX.search(token):
        return True
    # A path or a long name may contain one, so each word is checked too.
    return _random_word(token) or any(map(_random_word, PARTING.split(token)))


def _random_word(word: str) -> bool:
    if len(word) < 16:
        return False
    kinds = (
        any(c.islower() for c in word),
        any(c.isupper() for c in word),
        any(c.isdigit() for c in word),
    )
    # Names change their kind of letter at word boundaries; random text anywhere.
    turns = sum(
        a.isalnum() and b.isalnum() and _kind(a) != _kind(b) for a, b in itertools.pairwise(word)
    )
    return sum(kinds) >= 2 and turns >= len(word) / 5 and _entropy(word) >= 3


def _kind(character: str) -> int:
    return 0 if character.islower() else 1 if character.isupper() else 2


def _entropy(text: str) -> float:
    """Return the bits per character.

    >>> _entropy("aaaa"), _entropy("abcd")
    (0.0, 2.0)
    """
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts) + 0.0


def scrub(name: str, value: str) -> str:
    """Return the value with secrets masked.

    >>> scrub("cmdline", "ro root=UUID=0c8e7f5a-1111-2222-3333-444455556666 db.password=hunter2")
    'ro root=UUID=0c8e7f5a-1111-2222-3333-444455556666 db.password=(masked)'
    """
    # One character is not a secret: `0`, `1`, `Y`.
    if named_secret(name):
        return MASK if len(value) > 1 else value
    return mask_random(mask_named(value))


def mask_url(url: str) -> str:
    """Return a URL with its credentials masked, whatever characters they have.

    >>> mask_url("postgresql://me:p@s/s@db/x?ssl=on&password=a@b&c")
    'postgresql://(masked)@db/x?ssl=on&password=(masked)'
    """
    scheme = re.match(r"[\w+.-]*://", url)
    begin = scheme.end() if scheme else 0
    for match in QUERY.finditer(url):
        if named_secret(match["key"]):
            if "@" in url[match.end() :] and "@" not in url[: match.start()]:
                return url[:begin] + MASK  # the parameter may be a part of a password
            url = url[: match.end()] + MASK
            break
    at = url.rfind("@", begin)
    return url if at < 0 or url[begin : begin + 1] == "/" else f"{url[:begin]}{MASK}{url[at:]}"


def drop_secrets(url: str) -> str:
    """Return a URL without password and secret parameters; programs find these in files such as ~/.pgpass.

    >>> drop_secrets("postgresql://me:pw@db/x?password=b&ssl=on"), drop_secrets("sqlite:////a/b.db")
    ('postgresql://me@db/x?ssl=on', 'sqlite:////a/b.db')
    """
    masked = mask_url(url)
    if masked == url or "://" not in url:
        return masked
    before, _, query = url.partition("?")
    scheme, _, rest = before.partition("://")
    user, at, host = rest.rpartition("@")
    kept = "&".join(pair for pair in query.split("&") if not named_secret(pair.partition("=")[0]))
    return f"{scheme}://{user.partition(':')[0]}{at}{host}" + (f"?{kept}" if kept else "")


def mask_named(value: str) -> str:
    """Mask what follows the name of a secret, and credentials in URLs.

    >>> mask_named("run --token abc, db.password=hunter2, https://me:pw@example.org/")
    'run --token (masked) db.password=(masked), https://(masked)@example.org/'
    >>> mask_named("RuntimeError('--token abc'), ['x', '--password', 'hunter2']")
    "RuntimeError('--token (masked) ['x', '--password', (masked)"
    """
    value = USER_INFO.sub(rf"\1{MASK}@", value)
    return OPTION.sub(_option, _mask_pairs(value))


def _mask_pairs(text: str) -> str:
    """Mask pairs; a value may be a pair itself, as in `audit: key=…`, so it is searched too."""
    pieces, at, begin = [], 0, 0
    while match := KEY.search(text, begin):
        begin = match.end()
        value = VALUE.match(text, begin) if named_secret(match["key"]) else None
        if value is not None and len(value[0]) > 1:
            pieces += [text[at:begin], MASK]
            at = begin = value.end()
    return "".join((*pieces, text[at:]))


def mask_random(value: str) -> str:
    """Mask the words that look random."""
    if not looks_secret(value):
        return value
    words = [MASK if looks_secret(word) else word for word in value.split(" ")]
    masked = " ".join(words)
    return MASK if looks_secret(masked) else masked


def _option(match: re.Match[str]) -> str:
    secret = named_secret(match["key"]) and len(match["value"]) > 1
    return f"{match['key']}{match['is']}{MASK}" if secret else match[0]
