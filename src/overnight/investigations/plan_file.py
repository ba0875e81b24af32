"""Plan files: YAML to `model.plan.Plan`, with line and column in every error, and back.

The types in `model.plan` are the only definition of a file's keys; tools/plan_docs.py makes the JSON schema from them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import enum
import math
import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import yaml

from overnight import errors
from overnight.model import plan as plans
from overnight.model import sizes, times
from overnight.model.host_changes import Builtin
from overnight.model.plan import Plan, Unit
from overnight.model.text import plural

EXAMPLES = pathlib.Path(__file__).parent / "examples"
# PyYAML reads about 40,000 values a second.
MAX_BYTES, MAX_VALUES, MAX_LEVELS = 256 << 10, 10_000, 16
MAX_NUMBER = 1 << 53
TODO = "`overnight run --example driver-resets` prints a valid plan"
KINDS = {
    str: "a text; put it in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def _parse_share(text: str) -> float:
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


UNITS: Mapping[Unit, tuple[str, Callable[[str], float]]] = {
    Unit.DURATION: ("a time such as 8h", times.parse_duration),
    Unit.SIZE: ("a size such as 40GB", sizes.parse_size),
    Unit.SHARE: ("a share such as 60%", _parse_share),
}


class Problem(NamedTuple):
    """Why a plan cannot be carried out; `where` is a key, as `hosts.count`."""

    where: str
    why: str
    todo: str


Check = Callable[[Plan], Iterable[Problem]]


def find_problems(plan: Plan) -> Iterator[Problem]:
    """Yield what the types of a plan do not exclude."""
    yield from _find_arm_problems(plan)
    for name in {*plan.experiment.allow} - {*Builtin}:
        yield Problem("experiment.allow", f"unknown change {name}", f"use {', '.join(Builtin)}")
    if plan.is_local and Builtin.REBOOT in plan.experiment.allow:
        yield Problem("experiment.allow", "reboot is not possible with provider local: this machine carries out the plan", "remove reboot")  # fmt: skip
    load = plan.load
    if load and load.duty is not None and not 0 < load.duty <= 1:
        yield Problem("load.duty", f"load.duty must be above 0 and at most 100% (got {100 * load.duty:g}%)", "duty: 60%")  # fmt: skip
    if load and (load.kind == "replay") != bool(load.profile):
        yield Problem("load", "`kind: replay` needs load.profile, and no other kind takes one", "overnight cpu -O json > profile.json")  # fmt: skip
    if plan.report and not plan.report.endswith(".html"):
        yield Problem("report", "report does not end with .html", "report: night.html")
    for local, why in (("rehearsal", "it causes the incident on this machine"), ("report", "a server keeps the report itself")):  # fmt: skip
        if getattr(plan, local) and not plan.is_local:
            yield Problem(local, f"{local} needs provider local: {why}", f"use `provider: local`, or remove {local}")  # fmt: skip
    budget = plan.budget
    if plan.busy_hours > budget.hours:
        yield Problem("budget.hours", f"arms and experiment take up to {plan.busy_hours:.3g} hours, but budget.hours is {budget.hours:g}", "raise it, or shorten `wait.for`")  # fmt: skip
    if budget.money and plan.cost > budget.money:
        yield Problem("budget.money", f"{plural(plan.host_count, 'host')} for {budget.hours:g} hours may cost {plan.cost:.2f}, but budget.money is {budget.money:g}", "raise it, or use fewer hosts or hours")  # fmt: skip


def _find_arm_problems(plan: Plan) -> Iterator[Problem]:
    kinds = [arm.kind for arm in plan.arms]
    if not kinds or len(set(kinds)) != len(kinds):
        yield Problem("arms", "arms must have at least one entry, and each kind only once", "arms: [{kind: cold}, {kind: hot}]")  # fmt: skip
    own = [arm.hosts > 0 for arm in plan.arms]
    if any(own) and not all(own):
        yield Problem("arms", "either all arms set `hosts`, or none does", "give each arm `hosts`")
    if any(0 < group.up_at_most <= group.up_at_least for group in plan.groups):
        yield Problem("arms", "no host has an uptime within `up_at_least` and `up_at_most`; arms that take turns have the same hosts", "give each arm `hosts`, or change the bounds")  # fmt: skip
    if plan.hosts.names and any(own):
        yield Problem("hosts.names", "hosts.names cannot be combined with `hosts` of arms", "use hosts.labels instead of hosts.names")  # fmt: skip


def load(path: pathlib.Path, check: Check = find_problems) -> Plan:
    """Read a plan; raise UsageError with line and column if it is not valid."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise errors.unreadable(path, error, "name a plan file") from error
    return parse(text, str(path), check)


def parse(text: bytes, name: str = "the plan", check: Check = find_problems) -> Plan:
    return _Reader(name).read(text, check)


def examples() -> dict[str, str]:
    """Return the text of each example, by name."""
    return {path.stem: path.read_text() for path in sorted(EXAMPLES.glob("*.yaml"))}


def dump(plan: Plan, comment: str = "") -> str:
    """Return the file of a plan: what differs from the defaults."""
    lines = "".join(f"# {line}\n" for line in comment.splitlines())
    document = {"schema": plans.SCHEMA, **write_value(plan)}
    text: str = yaml.safe_dump(document, sort_keys=False)
    return lines + text


def write_value(value: Any, unit: Unit | None = None) -> Any:
    """Return a value of a plan as a file has it; of a dataclass, the keys that differ from their defaults."""
    if dataclasses.is_dataclass(value):
        given = [(field, key, getattr(value, field.name)) for field, key, _ in list_fields(type(value))]  # fmt: skip
        changed = (each for each in given if each[2] not in (each[0].default, {}))
        return {key: write_value(each, field.metadata["unit"]) for field, key, each in changed}
    if isinstance(value, tuple):
        return [write_value(each) for each in value]
    if isinstance(value, enum.Enum):
        return str(value)
    if unit is Unit.DURATION:
        text = times.format_duration(value).replace(" ", "").replace("min", "m")
        return text if times.parse_duration(text) == value else value
    if unit is Unit.SHARE:
        return f"{100 * value:g}%"
    return dict(value) if isinstance(value, Mapping) else value


# --- types


def list_fields(kind: Any) -> list[tuple[dataclasses.Field[Any], str, Any]]:
    """Return each field with its key and its type; the type is without None."""
    hints = {name: _strip_none(hint) for name, hint in typing.get_type_hints(kind).items()}
    return [(f, f.metadata["name"] or f.name, hints[f.name]) for f in dataclasses.fields(kind)]


def is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _strip_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        return next(each for each in typing.get_args(hint) if each is not type(None))
    return hint


# --- reading


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._marks: dict[str, yaml.Mark] = {}  # of each key, as `hosts.count`

    def read(self, text: bytes, check: Check) -> Plan:
        if len(text) > MAX_BYTES:
            self._refuse(None, f"it is larger than {sizes.format_size(MAX_BYTES)}")
        try:
            self._check_limits(text)
            node = yaml.compose(text, yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            self._refuse(error.problem_mark, f"not valid YAML: {error.problem}")
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
            self._refuse(None, "it is not a YAML document in UTF-8")
        if node is None:
            self._refuse(None, "it is empty")
        plan: Plan = self._read_keys(Plan, node, "")
        for problem in check(plan):
            self._refuse(self._find(problem.where), problem.why, problem.todo)
        return plan

    def _check_limits(self, text: bytes) -> None:
        """Refuse what takes long to read. An alias of 3 bytes repeats a whole list, so none is accepted."""
        values = levels = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            levels += isinstance(event, yaml.CollectionStartEvent)
            levels -= isinstance(event, yaml.CollectionEndEvent)
            values += isinstance(event, yaml.NodeEvent)
            if isinstance(event, yaml.AliasEvent):
                self._refuse(event.start_mark, "aliases are not supported")
            if values > MAX_VALUES or levels > MAX_LEVELS:
                self._refuse(event.start_mark, f"more than {MAX_VALUES:,} values, or {MAX_LEVELS} levels")  # fmt: skip

    def _find(self, where: str) -> yaml.Mark | None:
        """Return the mark of a key, or of the nearest one above it that the file has."""
        while where and where not in self._marks:
            where = where.rpartition(".")[0]
        return self._marks.get(where)

    def _refuse(self, mark: yaml.Mark | None, what: str, todo: str = TODO) -> NoReturn:
        at = f"{self._name}:{mark.line + 1}:{mark.column + 1}" if mark else self._name
        raise errors.UsageError(f"{at}: {what}", why="the plan is not valid; nothing was started", todo=todo)  # fmt: skip

    def _read(self, kind: Any, node: yaml.Node, where: str, field: Mapping[str, Any]) -> Any:
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin is tuple:
            if not isinstance(node, yaml.SequenceNode):
                self._refuse(node.start_mark, f"{where} is not a list")
            return tuple(self._read(inner[0], each, f"{where}.{n}", field) for n, each in enumerate(node.value))  # fmt: skip
        if origin is not None:
            items = self._read_mapping(node, where).items()
            return {name: self._read(inner[1], each, f"{where}.{name}", field) for name, each in items}  # fmt: skip
        if dataclasses.is_dataclass(kind):
            return self._read_keys(kind, node, where)
        return self._read_scalar(kind, node, where, field)

    def _read_mapping(self, node: yaml.Node, where: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self._refuse(node.start_mark, f"{where or 'the document'} has no `key: value`")
        items: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(key.start_mark, "a key is not a text")
            if key.value in items:
                self._refuse(key.start_mark, f"{key.value} is given twice")
            items[key.value] = value
            self._marks[_join(where, key.value)] = key.start_mark
        return items

    def _read_keys(self, kind: Any, node: yaml.Node, where: str) -> Any:
        items = self._read_mapping(node, where)
        known = {name: (field, hint) for field, name, hint in list_fields(kind)}
        if not where and "schema" in items and items.pop("schema").value != plans.SCHEMA:
            self._refuse(self._marks["schema"], f"schema is not {plans.SCHEMA}")
        for name in (each for each in items if each not in known):
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"keys: {', '.join(known)}"
            self._refuse(self._marks[_join(where, name)], f"{where or 'a plan'} has no key {name[:60]}; {hint}")  # fmt: skip
        values = {}
        for name, (field, hint) in known.items():
            at = _join(where, name)
            if name in items:
                values[field.name] = self._read(hint, items[name], at, field.metadata)
            elif is_required(field):
                self._refuse(node.start_mark, f"{at} is missing")
        return kind(**values)

    def _read_scalar(self, kind: Any, node: yaml.Node, where: str, field: Mapping[str, Any]) -> Any:
        value = _construct(node)
        if issubclass(kind, enum.Enum):
            if value not in list(kind):
                self._refuse(node.start_mark, f"{where} is not one of {', '.join(kind)}")
            return kind(value)
        wanted, parse_unit = UNITS[field["unit"]] if field["unit"] else (KINDS[kind], None)
        if parse_unit and isinstance(value, str):
            with contextlib.suppress(errors.UsageError, ValueError):
                value = kind(parse_unit(value))
        if isinstance(value, int | float) and abs(value) > MAX_NUMBER:
            self._refuse(node.start_mark, f"{where} is too large")
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
            self._refuse(node.start_mark, f"{where} is not {wanted}")
        if field["least"] is not None and value < field["least"]:
            self._refuse(node.start_mark, f"{where} is less than {field['least']}")
        return value


def _join(where: str, name: str) -> str:
    return f"{where}.{name}".lstrip(".")


def _construct(node: yaml.Node) -> object:
    if not isinstance(node, yaml.ScalarNode):
        return None
    try:
        return yaml.constructor.SafeConstructor().construct_document(node)
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, ValueError):
        return None  # such as a date that does not exist, or `!!bool x`
