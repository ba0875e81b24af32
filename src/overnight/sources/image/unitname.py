"""Names of units: `ssh.service`, the template `getty@.service`, its instance `getty@tty1.service`."""

from __future__ import annotations

import re

KINDS = frozenset({"service", "socket", "target", "device", "mount", "automount", "swap", "timer", "path", "slice", "scope"})  # fmt: skip
NAME = re.compile(rf"[\w:.\\-][\w:.\\@-]*\.(?:{'|'.join(KINDS)})", re.ASCII)
MAX_NAME = 255


def kind_of(name: str) -> str:
    """Return `service` for `ssh.service`; "" where the suffix is not a unit type."""
    kind = name.rpartition(".")[2]
    return kind if kind in KINDS else ""


def is_valid(name: str) -> bool:
    """Return whether systemd accepts it as a unit name.

    >>> is_valid("a@b@c.service"), is_valid("@x.service"), is_valid("a b.service"), is_valid("a.conf")
    (True, False, False, False)
    """
    return len(name) <= MAX_NAME and NAME.fullmatch(name) is not None


def prefix_of(name: str) -> str:
    """Return `getty` for `getty@tty1.service`, `ssh` for `ssh.service`."""
    stem = name.rpartition(".")[0]
    return stem.partition("@")[0]


def instance_of(name: str) -> str | None:
    """Return `tty1` for `getty@tty1.service`, "" for a template, None for others."""
    stem = name.rpartition(".")[0]
    return stem.partition("@")[2] if "@" in stem else None


def is_template(name: str) -> bool:
    return instance_of(name) == ""


def is_instance(name: str) -> bool:
    return bool(instance_of(name))


def template_of(name: str, instance: str = "") -> str:
    """Return `getty@.service` for `getty@tty1.service`, or another instance of that template."""
    return f"{prefix_of(name)}@{instance}.{name.rpartition('.')[2]}"


def shorter(name: str) -> tuple[str, ...]:
    """List the shorter names whose drop-ins apply too, the closest first.

    >>> shorter("a-b-c.service")
    ('a-b-.service', 'a-.service')
    """
    stem, _, kind = name.rpartition(".")
    at_sign = "@" if "@" in stem else ""
    prefix = stem.partition("@")[0].rstrip("-")
    names = []
    while "-" in prefix:
        prefix = prefix.rpartition("-")[0].rstrip("-")
        if not prefix:
            break
        names.append(f"{prefix}-{at_sign}.{kind}")
    return tuple(names)


def specify(text: str, name: str) -> str | None:
    """Expand specifiers such as `%i`; None where one is known only to a running manager.

    >>> specify("/etc/%p/%i.conf", "a@b.service"), specify("%h/x", "a.service")
    ('/etc/a/b.conf', None)
    """
    instance = instance_of(name) or ""
    known = {
        "%": "%",
        "": "%",  # a single one at the end
        "i": instance,
        "I": _unescape(instance),
        "n": name,
        "N": name.rpartition(".")[0],
        "p": prefix_of(name),
        "P": _unescape(prefix_of(name)),
        "t": "/run",
        "S": "/var/lib",
        "C": "/var/cache",
        "L": "/var/log",
        "E": "/etc",
    }
    try:
        return re.sub("%(.?)", lambda specifier: known[specifier[1]], text, flags=re.DOTALL)
    except KeyError:
        return None


def _unescape(text: str) -> str:
    """Turn `dev-sda` into `dev/sda`, like systemd-escape --unescape."""
    text = text.replace("-", "/")
    return re.sub(r"\\x([0-9A-Fa-f]{2})", lambda escape: chr(int(escape[1], 16)), text)
