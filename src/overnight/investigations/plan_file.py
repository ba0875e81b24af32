"""Plan files: YAML to `model.plan.Plan`, with line and column in every error, and back.

The types in `model.plan` are the only definition of a file's keys; the JSON schema for editors is made from them.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import math
import pathlib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import yaml

from overnight import errors
from overnight.model import host_changes, sizes, times
from overnight.model import plan as plans
from overnight.model.plan import Plan, Unit
from overnight.model.text import plural

EXAMPLES = pathlib.Path(__file__).parent / "examples"
MAX_BYTES = 1 << 20
TODO = "overnight run --example driver-resets   prints a plan that is valid"
KINDS = {
    str: "a text; put it in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
UNITS: Mapping[Unit, str] = {Unit.DURATION: "a time such as 8h", Unit.SIZE: "a size such as 40GB", Unit.SHARE: "a share such as 60%"}  # fmt: skip


def load(path: pathlib.Path) -> Plan:
    """Read a plan; raise UsageError with line and column if it is not valid."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise errors.unreadable(path, error, "name a plan file") from error
    return parse(text, str(path))


def parse(text: bytes, name: str = "the plan") -> Plan:
    return _Reader(name).read(text)


def examples() -> dict[str, str]:
    """Return the text of each example, by name."""
    return {path.stem: path.read_text() for path in sorted(EXAMPLES.glob("*.yaml"))}


def dump(plan: Plan, comment: str = "") -> str:
    """Return the file of a plan: what differs from the defaults."""
    lines = "".join(f"# {line}\n" for line in comment.splitlines())
    document = {"schema": plans.SCHEMA, **_plain(plan)}
    text: str = yaml.safe_dump(document, sort_keys=False)
    return lines + text


def schema() -> dict[str, Any]:
    """Return the JSON schema of plan files, for editors."""
    document = _describe(Plan)
    document["properties"] = {"schema": {"const": plans.SCHEMA}, **document["properties"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "a plan of overnight run",
        **document,
    }


def list_keys() -> tuple[tuple[str, str, str], ...]:
    """Return every key as `hosts.count`, its default, and what it means."""
    return tuple(_walk(Plan, ""))


def _walk(kind: Any, where: str) -> typing.Iterator[tuple[str, str, str]]:
    for field, name, hint in _fields(kind):
        inner = _inner(hint)
        if inner is not None:
            mark = "[]" if typing.get_origin(hint) is tuple else ""
            yield from _walk(inner, f"{where}{name}{mark}.")
        else:
            default = "required" if _is_required(field) else _show(field)
            yield f"{where}{name}", default, field.metadata["about"]


def _show(field: dataclasses.Field[Any]) -> str:
    value = None if field.default is dataclasses.MISSING else field.default
    return "" if value in (None, "", ()) else str(_write(value, field.metadata["unit"]))


# --- types


def _fields(kind: Any) -> list[tuple[dataclasses.Field[Any], str, Any]]:
    """Return each field with its key and its type."""
    hints = typing.get_type_hints(kind)
    return [(f, f.metadata["name"] or f.name, hints[f.name]) for f in dataclasses.fields(kind)]


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _bare(hint: Any) -> Any:
    """Return a type without None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(each for each in typing.get_args(hint) if each is not type(None))
    return hint


def _inner(hint: Any) -> Any:
    """Return the dataclass that a key holds, or a list of; None for a plain value."""
    bare = _bare(hint)
    item = typing.get_args(bare)[0] if typing.get_origin(bare) is tuple else bare
    return item if dataclasses.is_dataclass(item) else None


def _describe(hint: Any, unit: Unit | None = None) -> dict[str, Any]:
    bare = _bare(hint)
    if typing.get_origin(bare) is tuple:
        return {"type": "array", "items": _describe(typing.get_args(bare)[0])}
    if typing.get_origin(bare) is not None:  # a mapping
        return {"type": "object", "additionalProperties": _describe(typing.get_args(bare)[1])}
    if dataclasses.is_dataclass(bare):
        fields = _fields(bare)
        properties = {}
        for field, name, kind in fields:
            described = _describe(kind, field.metadata["unit"])
            least = field.metadata["least"]
            limits = {} if least is None else {"minimum": least}
            properties[name] = {"description": field.metadata["about"], **described, **limits}
        required = [name for field, name, _ in fields if _is_required(field)]
        about = {"description": (bare.__doc__ or "").strip(), "type": "object"}
        limits = {"required": required} if required else {}
        return {**about, "properties": properties, **limits, "additionalProperties": False}
    if issubclass(bare, enum.Enum):
        return {"enum": [str(each) for each in bare]}
    if unit is not None:
        return {"type": ["number", "string"]}
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[bare]}


# --- reading


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._marks: dict[str, yaml.Mark] = {}  # of each key, as `hosts.count`

    def read(self, text: bytes) -> Plan:
        if len(text) > MAX_BYTES:
            self._refuse(None, f"it is larger than {sizes.format_size(MAX_BYTES)}")
        try:
            loader = yaml.SafeLoader(text)
            try:
                node = loader.get_single_node()
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            self._refuse(error.problem_mark, f"not valid YAML: {error.problem}")
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
            self._refuse(None, "it is not a YAML document in UTF-8")
        if node is None:
            self._refuse(None, "it is empty")
        plan: Plan = self._read(Plan, node, "")
        check(plan, lambda where, why, todo: self._refuse(self._find(where), why, todo))
        return plan

    def _find(self, where: str) -> yaml.Mark | None:
        """Return the mark of a key, or of the nearest one above it that the file has."""
        while where and where not in self._marks:
            where = where.rpartition(".")[0]
        return self._marks.get(where)

    def _refuse(self, mark: yaml.Mark | None, why: str, todo: str = TODO) -> NoReturn:
        at = f"{self._name}:{mark.line + 1}:{mark.column + 1}" if mark else self._name
        raise errors.UsageError(f"{at}: {why}", why="the plan is not valid; nothing was started", todo=todo)  # fmt: skip

    def _read(self, hint: Any, node: yaml.Node, where: str, field: Mapping[str, Any] = types.MappingProxyType({})) -> Any:  # fmt: skip
        bare, origin = _bare(hint), typing.get_origin(_bare(hint))
        if origin is tuple:
            if not isinstance(node, yaml.SequenceNode):
                self._refuse(node.start_mark, f"{where} is not a list")
            item = typing.get_args(bare)[0]
            return tuple(self._read(item, each, f"{where}.{n}") for n, each in enumerate(node.value))  # fmt: skip
        if origin is not None:
            item = typing.get_args(bare)[1]
            return {
                name: self._read(item, value, f"{where}.{name}")
                for name, (_, value) in self._items(node, where).items()
            }
        if dataclasses.is_dataclass(bare):
            return self._read_keys(bare, node, where)
        return self._read_value(bare, node, where, field)

    def _items(self, node: yaml.Node, where: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            self._refuse(node.start_mark, f"{where or 'the document'} has no `key: value`")
        items: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(key.start_mark, "a key is not a text")
            if key.value in items:
                self._refuse(key.start_mark, f"{key.value} is given twice")
            items[key.value] = (key, value)
            self._marks[f"{where}.{key.value}".lstrip(".")] = key.start_mark
        return items

    def _read_keys(self, kind: Any, node: yaml.Node, where: str) -> Any:
        items = self._items(node, where)
        if not where and "schema" in items:
            key, value = items.pop("schema")
            if value.value != plans.SCHEMA:
                self._refuse(key.start_mark, f"schema is not {plans.SCHEMA}")
        known = {name: (field, hint) for field, name, hint in _fields(kind)}
        for name, (key, _) in items.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"keys: {', '.join(known)}"
                place = f"{where} has no key {name}" if where else f"a plan has no key {name}"
                self._refuse(key.start_mark, f"{place}; {hint}")
        values = {}
        for name, (field, hint) in known.items():
            at = f"{where}.{name}".lstrip(".")
            if name in items:
                values[field.name] = self._read(hint, items[name][1], at, field.metadata)
            elif _is_required(field):
                self._refuse(node.start_mark, f"{at} is missing")
        return kind(**values)

    def _read_value(self, kind: Any, node: yaml.Node, where: str, field: Mapping[str, Any]) -> Any:
        unit = field.get("unit")
        value = _construct(node)
        if issubclass(kind, enum.Enum):
            if value not in list(kind):
                self._refuse(node.start_mark, f"{where} is not one of {', '.join(kind)}")
            return kind(value)
        if unit is not None and isinstance(value, str):
            try:
                value = kind(PARSERS[unit](value))
            except (errors.UsageError, ValueError):
                self._refuse(node.start_mark, f"{where} is not {UNITS[unit]}")
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
            wanted = UNITS[unit] if unit is not None else KINDS[kind]
            self._refuse(node.start_mark, f"{where} is not {wanted}")
        least = field.get("least")
        if least is not None and not value >= least:
            self._refuse(node.start_mark, f"{where} is less than {least}")
        return value


def _construct(node: yaml.Node) -> object:
    if not isinstance(node, yaml.ScalarNode):
        return None
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError):  # such as a date that does not exist
        return None
    finally:
        loader.dispose()


def _parse_share(text: str) -> float:
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


PARSERS: Mapping[Unit, Callable[[str], float]] = {
    Unit.DURATION: times.parse_duration,
    Unit.SIZE: sizes.parse_size,
    Unit.SHARE: _parse_share,
}


# --- what is valid beyond types

Refuse = Callable[[str, str, str], NoReturn]
CHANGES = tuple(host_changes.Builtin)


def check(plan: Plan, refuse: Refuse) -> None:
    """Call `refuse` with the key, the reason and the remedy of the first thing that cannot be carried out."""
    kinds = [arm.kind for arm in plan.arms]
    if not kinds or len(set(kinds)) != len(kinds):
        refuse("arms", "arms must name each kind once, and at least one", "arms: [{kind: cold}, {kind: hot}]")  # fmt: skip
    own = [arm.hosts > 0 for arm in plan.arms]
    if any(own) and not all(own):
        refuse("arms", "either every arm has hosts of its own or none has", "give each arm `hosts`")
    if plan.hosts.names and all(own):
        refuse("hosts.names", "arms with hosts of their own cannot share named hosts", "use labels and count")  # fmt: skip
    for name in plan.experiment.allow:
        if name not in CHANGES:
            refuse("experiment.allow", f"unknown change {name}", f"use {', '.join(CHANGES)}")
    if plan.is_local and host_changes.Builtin.REBOOT in plan.experiment.allow:
        refuse("experiment.allow", "this machine carries the plan out, and cannot reboot", "leave reboot out")  # fmt: skip
    if plan.load is not None and plan.load.duty is not None and not 0 < plan.load.duty <= 1:
        refuse("load.duty", "a share is above 0 and at most 100%", "duty: 60%")
    if plan.load is not None and (plan.load.kind == "replay") != bool(plan.load.profile):
        refuse("load", "`kind: replay` needs `profile`, and no other kind takes one", "overnight cpu -O json > profile.json")  # fmt: skip
    if plan.rehearsal is not None and not plan.is_local:
        refuse("rehearsal", "an incident is caused on purpose on this machine only", "use `provider: local`, or leave it out")  # fmt: skip
    if plan.busy_hours > plan.budget.hours:
        refuse("budget.hours", f"the arms alone take {plan.busy_hours:.3g} hours", "raise it, or shorten `wait.for`")  # fmt: skip
    if plan.budget.money and plan.cost > plan.budget.money:
        refuse("budget.money", f"{plural(plan.host_count, 'host')} for {plan.budget.hours:g} hours cost up to {plan.cost:.2f}", "raise it, or use fewer hosts or hours")  # fmt: skip


# --- writing


def _plain(value: Any) -> dict[str, Any]:
    """Return the keys of a dataclass that differ from its defaults."""
    document: dict[str, Any] = {}
    for field, name, _ in _fields(type(value)):
        given = getattr(value, field.name)
        is_default = given == field.default or (field.default is dataclasses.MISSING and given == {})  # fmt: skip
        if not is_default:
            document[name] = _write(given, field.metadata["unit"])
    return document


def _write(value: Any, unit: Unit | None = None) -> Any:
    if dataclasses.is_dataclass(value):
        return _plain(value)
    if isinstance(value, tuple):
        return [_write(each) for each in value]
    if isinstance(value, enum.Enum):
        return str(value)
    if unit is Unit.DURATION:
        text = times.format_duration(value).replace(" ", "").replace("min", "m")
        return text if times.parse_duration(text) == value else value
    if unit is Unit.SHARE:
        return f"{100 * value:g}%"
    return dict(value) if isinstance(value, Mapping) else value
