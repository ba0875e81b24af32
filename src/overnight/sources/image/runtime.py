"""What runs, not only what is installed: units, boot steps, modules, listening programs, kernel taint.

A boot step is a oneshot service that a target or another unit pulls in, or a stage of cloud-init, whose
`/var/lib/cloud/data/status.json` looks like this:

    {"v1": {"datasource": "DataSourceEc2Local", "stage": null,
      "modules-final": {"errors": ["('scripts_user', RuntimeError('Runparts: 1 failures'))"],
                        "start": 1794725420.1, "finished": 1794725459.4, "recoverable_errors": {}}}}
"""

from __future__ import annotations

import collections
import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping

from overnight.sources.image import inventory, unitname
from overnight.sources.image import tree as trees

STATUS = "/var/lib/cloud/data/status.json"
STAGES = ("init-local", "init", "modules-config", "modules-final")
MAX_ERROR = 300  # characters
MODULE = re.compile(r"\('([\w-]{1,64})',")
MAX_DESCRIPTORS = 200_000
LISTENING = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}
LOOPBACK = re.compile(r"[0-9A-F]{6}7F|0{24}01000000|0{16}FFFF0000[0-9A-F]{6}7F")
SERVICE = re.compile(r"/([^/]+\.service)(?:/|$)")
# Documentation/admin-guide/tainted-kernels.rst, by bit.
TAINTS = (
    "P proprietary module", "F module was force loaded", "S out of specification",
    "R module was force unloaded", "M machine check", "B bad page", "U set by a process", "D died before: oops",
    "A ACPI table overridden", "W warning before", "C staging driver", "I firmware bug worked around",
    "O out-of-tree module", "E unsigned module", "L soft lockup before", "K live patched",
    "X set by the distribution", "T randomised structures", "N in-kernel test", "J debug operation of fwctl",
)  # fmt: skip


def parse_units(
    shown: Mapping[str, Mapping[str, str]], known: Collection[str]
) -> tuple[inventory.Part, inventory.Part]:
    """Return the state of each unit, and the result of each boot step.

    Units not in `known` differ at every boot, such as `user@1000.service`: only failed ones are kept.

    >>> parse_units({"a.service": {"LoadState": "loaded", "ActiveState": "active", "SubState": "running",
    ...     "Result": "success", "NRestarts": "2", "ActiveEnterTimestampMonotonic": "7"}}, {"a.service"})[0]
    {'a.service': {'active': 'active', 'result': 'success', 'sub': 'running', 'restarts': '2', 'ran': 'yes'}}
    """
    running: inventory.Part = {}
    steps: inventory.Part = {}
    for name, unit in sorted(shown.items()):
        kind = unitname.kind_of(name)
        result = unit.get("Result") or "success"
        failed = unit.get("ActiveState") == "failed" or result != "success"
        is_kept = failed or (name in known and kind not in ("mount", "swap"))
        if unit.get("LoadState") != "loaded" or not is_kept:
            continue
        if _is_boot_step(unit):
            status = {"exit status": unit.get("ExecMainStatus", "")} if failed else {}
            steps[name] = {"result": _outcome(unit, result), **status}
            continue
        facts = {"active": unit.get("ActiveState", ""), "result": result}
        if kind == "service":
            facts["sub"] = unit.get("SubState", "")
            facts["restarts"] = unit.get("NRestarts", "0")
            facts["ran"] = "yes" if _happened(unit, "ActiveEnterTimestampMonotonic") else "never"
        running[name] = facts
    return running, steps


def _is_boot_step(unit: Mapping[str, str]) -> bool:
    pulled_in = unit.get("WantedBy") or unit.get("RequiredBy")
    return bool(unit.get("Type") == "oneshot" and pulled_in and not unit.get("TriggeredBy"))


def _outcome(unit: Mapping[str, str], result: str) -> str:
    if result != "success":
        return result
    if unit.get("ActiveState") == "activating":
        return "not finished"
    if unit.get("ConditionResult") == "no" and _happened(unit, "ConditionTimestampMonotonic"):
        return "skipped"
    # Without ExecStart=, or with RemainAfterExit=, only the second is set.
    ran = ("ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic")
    return "success" if any(_happened(unit, name) for name in ran) else "not run"


def _happened(unit: Mapping[str, str], stamp: str) -> bool:
    return unit.get(stamp, "0") not in ("", "0")


def parse_cloud_init(status: str) -> inventory.Part:
    """Return the result of cloud-init and of each stage; raise ValueError for other text.

    >>> parse_cloud_init('{"v1": {"init": {"start": 1, "finished": null, "errors": []}}}')
    {'cloud-init': {'result': 'not finished'}, 'cloud-init init': {'result': 'not finished'}}
    """
    try:
        document = json.loads(status)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    whole = document.get("v1") if isinstance(document, dict) else None
    if not isinstance(whole, dict):
        raise ValueError("it is not a status of cloud-init")
    stages = {name: _stage(stage) for name in STAGES if isinstance(stage := whole.get(name), dict)}
    results = {stage["result"] for stage in stages.values()}
    unfinished = "not finished" if results & {"not finished", "not run"} else "success"
    found: inventory.Part = {
        "cloud-init": {"result": "failed" if "failed" in results else unfinished}
        | ({"datasource": str(source)} if (source := whole.get("datasource")) else {})
    }
    return found | {f"cloud-init {name}": stage for name, stage in stages.items()}


def _stage(stage: Mapping[str, object]) -> dict[str, str]:
    listed = stage.get("errors")
    problems = [str(error) for error in listed] if isinstance(listed, list) else []
    if problems:
        modules = sorted({match[1] for error in problems if (match := MODULE.match(error))})
        named = {"failed modules": " ".join(modules)} if modules else {}
        # The next lines quote the command that failed, and what it printed.
        error = re.split(r"\n|\\n", problems[0], maxsplit=1)[0]
        if len(error) > MAX_ERROR:  # half a secret may not look like one
            error = f"{error[:MAX_ERROR].rpartition(' ')[0]} …"
        return {"result": "failed", **named, "error": error}
    if not stage.get("finished"):
        return {"result": "not finished" if stage.get("start") else "not run"}
    return {"result": "degraded" if stage.get("recoverable_errors") else "success"}


def read_cloud_init(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    """Read the results of cloud-init; a host without it has none."""
    if not tree.exists(STATUS):
        return {}
    with inventory.report_errors(gaps, STATUS):
        try:
            return parse_cloud_init(tree.text(STATUS, 1 << 20))
        except ValueError as error:
            gaps(STATUS, str(error))
    return {}


def parse_modules(text: str) -> inventory.Part:
    """Parse /proc/modules: the state of each module and its taint.

    >>> parse_modules("ena 151552 0 - Live 0x0000000000000000 (OE)\\n")
    {'ena': {'state': 'live', 'taint': 'OE'}}
    """
    modules: inventory.Part = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 5:
            taint = {"taint": fields[6].strip("()")} if len(fields) > 6 else {}
            modules[fields[0]] = {"state": fields[4].lower(), **taint}
    return modules


def read_loaded(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    """Read the loaded modules; none where the kernel has no modules."""
    with inventory.report_errors(gaps, "loaded"), contextlib.suppress(FileNotFoundError):
        return parse_modules(tree.text("/proc/modules"))
    return {}


def decode_taint(number: int) -> inventory.Part:
    """Return the letter of each taint by its meaning.

    >>> decode_taint(0), decode_taint(4097)
    ({}, {'proprietary module': 'P', 'out-of-tree module': 'O'})
    """
    bits = [bit for bit in range(number.bit_length()) if number >> bit & 1]
    names = (TAINTS[bit] if bit < len(TAINTS) else f"? bit {bit}" for bit in bits)
    return {meaning: letter for letter, _, meaning in (name.partition(" ") for name in names)}


def read_taint(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    with inventory.report_errors(gaps, "taint"):
        text = tree.text("/proc/sys/kernel/tainted", 64)
        if text.strip().isdecimal():
            return decode_taint(int(text))
        gaps("taint", "it is not a number")
    return {}


def parse_sockets(text: str, state: str) -> Iterator[tuple[str, int, bool]]:
    """Yield inode, port and whether only this host can connect, of the sockets in a state.

    >>> row = "   0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1"
    >>> list(parse_sockets(row, "0A"))
    [('4711', 22, True)]
    """
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[3] == state and fields[9].isdecimal():
            address, _, port = fields[1].partition(":")
            with contextlib.suppress(ValueError):
                yield fields[9], int(port, 16), LOOPBACK.fullmatch(address) is not None


def read_listening(tree: trees.Tree, gaps: inventory.Gaps) -> inventory.Part:
    """Read the ports on which programs listen, by program, with its unit. Addresses are left out."""
    first, last = _ephemeral(tree)
    sockets: dict[str, tuple[str, str]] = {}
    for name, state in LISTENING.items():
        path = f"/proc/1/net/{name}"
        if name.endswith("6") and not tree.exists(path):
            continue  # a kernel without IPv6
        with inventory.report_errors(gaps, "listening"):
            for inode, port, is_local in parse_sockets(tree.text(path, 16 << 20), state):
                way = name.rstrip("6") + (" loopback" if is_local else "")
                # The kernel chose the port: another one after each start.
                sockets[inode] = (way, "ephemeral" if first <= port <= last else str(port))
    programs: dict[str, dict[str, set[str]]] = {}
    for pid, inodes in _find_owners(tree, gaps, frozenset(sockets)):
        program = tree.line(f"/proc/{pid}/comm") if pid else "(no process)"
        facts = programs.setdefault(program, collections.defaultdict(set))
        for way, port_name in map(sockets.__getitem__, inodes):
            facts[way].add(port_name)
        if pid and (service := SERVICE.search(tree.line(f"/proc/{pid}/cgroup"))):
            facts["unit"].add(service[1])
    return {
        # By number: longer ones are larger.
        program: {name: " ".join(sorted(each, key=lambda text: (len(text), text))) for name, each in facts.items()}
        for program, facts in programs.items()
    }  # fmt: skip


def _ephemeral(tree: trees.Tree) -> tuple[int, int]:
    words = tree.line("/proc/sys/net/ipv4/ip_local_port_range").split()
    if len(words) == 2 and all(map(str.isdecimal, words)):
        return int(words[0]), int(words[1])
    return 32768, 60999


def _find_owners(
    tree: trees.Tree, gaps: inventory.Gaps, wanted: frozenset[str]
) -> Iterator[tuple[str | None, set[str]]]:
    """Yield each process with its sockets of `wanted`, then None with those that no process has."""
    left, searched, denied = set(wanted), 0, False
    for pid in filter(str.isdecimal, inventory.list_names(tree, gaps, "/proc", "listening")):
        if not left or searched > MAX_DESCRIPTORS:
            break
        try:
            entries = tree.entries(f"/proc/{pid}/fd")
        except PermissionError:
            denied = True
            continue
        except OSError:
            continue  # it has ended
        searched += len(entries)
        targets = {entry.target[8:-1] for entry in entries.values() if entry.target.startswith("socket:[")}  # fmt: skip
        if owned := targets & wanted:
            left -= owned
            yield pid, owned
    if left and (denied or searched > MAX_DESCRIPTORS):
        why = (
            "programs of other users are visible to root only" if denied else "too many open files"
        )
        gaps("listening", why)
    elif left:
        yield None, left
