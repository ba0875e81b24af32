"""Plan files: what is valid, where an error is, and that files, schema and documentation are one definition."""

from __future__ import annotations

import contextlib
import json
import pathlib

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tools import plan_docs

from overnight import errors
from overnight.investigations import plan_file
from overnight.model.plan import ArmKind, ArmPlan, BudgetPlan, HostsPlan, LoadPlan, Plan, WaitPlan

REPOSITORY = pathlib.Path(__file__).parents[3]


@pytest.mark.parametrize("name", plan_file.examples())
def test_examples_are_valid_and_survive_a_round_trip(name: str) -> None:
    text = plan_file.examples()[name]
    plan = plan_file.parse(text.encode())
    assert plan.name == name
    assert plan_file.parse(plan_file.dump(plan, "the next plan\nof two lines").encode()) == plan
    jsonschema.validate(yaml.safe_load(text), plan_docs.schema())


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("name: x\nhosts: {coutn: 2}", "2:9", "hosts has no key coutn; did you mean count?"),
        ("name: x\nwait: {for: soon}", "2:13", "wait.for is not a time such as 8h"),
        ("name: x\nbudget: {disk: big}", "2:16", "budget.disk is not a size such as 40GB"),
        ("name: x\nload: {duty: half}", "2:14", "load.duty is not a share such as 60%"),
        ("name: x\nload: {duty: 0%}", "2:8", "load.duty must be above 0 and at most 100% (got 0%)"),
        ("name: x\nload: {cores: 3}", "2:15", "load.cores is not a text; put it in quotes"),
        ("name: x\narms: [{kind: warm}]", "2:15", "arms.0.kind is not one of cold, hot"),
        ("name: x\narms: []", "2:1", "arms must have at least one entry, and each kind only once"),
        ("name: x\narms: [{kind: hot}, {kind: hot}]", "2:1", "arms must have at least one entry, and each kind only once"),
        ("name: x\narms: [{kind: hot, hosts: 1}, {kind: cold}]", "2:1", "either all arms set `hosts`"),
        ("name: x\narms: [{kind: hot, up_at_least: 5d}, {kind: cold, up_at_most: 12h}]", "2:1", "no host has an uptime within"),
        ("name: x\narms: [{kind: hot, hosts: 1, up_at_least: 5d, up_at_most: 5d}]", "2:1", "no host has an uptime within"),
        ("name: x\nhosts: {up_at_least: 5d}", "2:9", "hosts has no key up_at_least"),
        ("name: x\nhosts: {count: 0}", "2:16", "hosts.count is less than 1"),
        ("name: x\nhosts: {count: true}", "2:16", "hosts.count is not a whole number"),
        ("name: x\nbudget: {hours: .nan}", "2:17", "budget.hours is not a number"),
        ("name: x\nbudget: {hours: 1}", "2:10", "arms and experiment take up to 8 hours, but budget.hours is 1"),
        ("name: x\nbudget: {price: 2, money: 9}", "2:20", "1 host for 12 hours may cost 24.00, but budget.money is 9"),
        ("name: x\nload: {kind: replay}", "2:1", "`kind: replay` needs load.profile"),
        ("name: x\nload: {profile: p.json}", "2:1", "`kind: replay` needs load.profile, and no other kind takes one"),
        ("name: x\nload: {duty: 101%}", "2:8", "load.duty must be above 0 and at most 100% (got 101%)"),
        ("name: x\nload: {duty: '2'}", "2:8", "load.duty must be above 0 and at most 100% (got 200%)"),
        ("name: x\nreport: night.txt", "2:1", "report does not end with .html"),
        ("name: x\nhosts: {names: [a]}\narms: [{kind: hot, hosts: 1}]", "2:9", "hosts.names cannot be combined with `hosts` of arms"),
        ("name: x\nhosts: {count: 9007199254740993}", "2:16", "hosts.count is too large"),
        ("name: x\nexperiment: {allow: [rm]}", "2:14", "unknown change rm"),
        ("name: x\nexperiment: {allow: [reboot]}", "2:14", "reboot is not possible with provider local"),
        ("name: x\nrehearsal: {name: z}\nhosts: {provider: ec2}", "2:1", "rehearsal needs provider local"),
        ("name: x\nreport: r.html\nhosts: {provider: ec2}", "2:1", "report needs provider local"),
        ("name: x\nhosts:\n  labels: [a]", "3:11", "hosts.labels has no `key: value`"),
        ("name: x\nhosts: {labels: {a: 2020-13-45}}", "2:21", "hosts.labels.a is not a text"),
        ("arms: [{kind: hot}]", "1:1", "name is missing"),
        ("name: x\nname: y", "2:1", "name is given twice"),
        ("schema: overnight.plan/2\nname: x", "1:1", "schema is not overnight.plan/1"),
        ("name: [", "1:8", "not valid YAML"),
        ("name: &a [*a]", "1:11", "aliases are not supported"),
        ("name: x\nhosts: {names: &a [b]}\nwait: {events: *a}", "3:16", "aliases are not supported"),
        (f"name: x\nwait: {{events: [{'a.b, ' * plan_file.MAX_VALUES}]}}", "2:49982", "more than 10,000 values"),
        (f"name: x\nhosts: {'[' * 30}", "2:23", "more than 10,000 values, or 16 levels"),
        (f"name: x\nhosts: {{count: {'9' * 4000}}}", "2:16", "hosts.count is too large"),
        (f"name: x\nhosts: {{count: {':'.join(['59'] * 3000)}}}", "2:16", "hosts.count is too large"),
        (f"name: x\n{'k' * 900}: 1", "2:1", f"a plan has no key {'k' * 60}; keys:"),
        (f"name: x\nbudget: {{hours: 0x{'f' * 4000}}}", "2:17", "budget.hours is too large"),
        (f"name: x\nbudget: {{hours: {':'.join(['59'] * 3000)}.5}}", "2:17", "budget.hours is not a number"),
        ("name: x\nbudget: {hours: -.inf}", "2:17", "budget.hours is too large"),
        ("name: x\nreport: !!bool maybe", "2:9", "report is not a text"),
        ("name: x\nreport: !!timestamp soon", "2:9", "report is not a text"),
        ("name: x\nbudget: {<<: {hours: 1}}", "2:10", "budget has no key <<"),
        ("name: x\nreport: !!python/object/apply:os.system [id]", "2:9", "report is not a text"),
        ("- 1", "1:1", "the document has no `key: value`"),
        ("{[1]: 2}", "1:2", "a key is not a text"),
    ],
)  # fmt: skip
def test_a_wrong_plan_is_refused_with_line_and_column(text: str, at: str, says: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        plan_file.parse(text.encode(), "plan.yaml")
    assert caught.value.what.startswith(f"plan.yaml:{at}: ")
    assert says in caught.value.what


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\xff", b"x" * (plan_file.MAX_BYTES + 1), b"[" * 1500])  # fmt: skip
def test_what_is_no_plan_at_all_is_refused(text: bytes) -> None:
    with pytest.raises(errors.UsageError, match=r"^the plan"):
        plan_file.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "budget: {hours: 8}",
        "budget: {price: 2, money: 24}",
        "hosts: {count: 9007199254740992}",
        "report: night.html",
        "hosts: {names: [a, b]}",
        "hosts: {provider: ec2}\nexperiment: {allow: [reboot]}\nwait: {for: 6h}",
        "arms: [{kind: hot, hosts: 1}, {kind: cold, hosts: 1}]",
        "arms: [{kind: hot, hosts: 1, up_at_least: 5d}, {kind: cold, hosts: 1, up_at_most: 12h}]",
        "load: {kind: replay, profile: p.json}",
        "load: {duty: '1'}",
        f"wait: {{events: [{'a.b, ' * (plan_file.MAX_VALUES - 7)}]}}",
    ],
)
def test_what_is_just_allowed_is_read(text: str) -> None:
    assert plan_file.parse(f"name: x\n{text}".encode()).name == "x"


def test_a_file_as_large_as_allowed_is_read_and_one_byte_more_is_not(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("name: x\n#".ljust(plan_file.MAX_BYTES, "-"))
    assert plan_file.load(path) == Plan(name="x")
    path.write_text("name: x\n#".ljust(plan_file.MAX_BYTES + 1, "-"))
    with pytest.raises(errors.UsageError, match="larger than"):
        plan_file.load(path)


def test_times_and_shares_that_no_short_text_has_survive_a_round_trip() -> None:
    plan = Plan(name="x", wait=WaitPlan(seconds=90.25), load=LoadPlan(duty=0.125))
    text = plan_file.dump(plan)
    assert "12.5%" in text
    assert plan_file.parse(text.encode()) == plan


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_file_crashes_the_reader(text: bytes) -> None:
    with contextlib.suppress(errors.UsageError):
        plan_file.parse(b"name: x\n" + text)


@given(
    count=st.integers(1, 99),
    seconds=st.integers(1, 3 * 3600),
    duty=st.integers(1, 100),
    kinds=st.lists(st.sampled_from(ArmKind), unique=True, min_size=1),
    labels=st.dictionaries(st.text(min_size=1), st.text()),
)
def test_every_plan_survives_a_round_trip(
    count: int, seconds: int, duty: int, kinds: list[ArmKind], labels: dict[str, str]
) -> None:
    plan = Plan(
        name="no",  # YAML 1.1 would read it as false
        hosts=HostsPlan(count=count, labels=labels),
        arms=tuple(ArmPlan(kind=kind, age={"dentries": 5}) for kind in kinds),
        load=LoadPlan(duty=duty / 100),
        wait=WaitPlan(seconds=seconds),
        budget=BudgetPlan(hours=12.5),
    )
    assert plan_file.parse(plan_file.dump(plan).encode()) == plan


def test_the_schema_and_the_documentation_have_every_key() -> None:
    written = json.loads((REPOSITORY / "docs/schemas/plan-1.json").read_text())
    assert written == plan_docs.schema()
    page = (REPOSITORY / "docs/investigations.md").read_text()
    rows = [*plan_docs.list_rows(written)]
    assert len(rows) > 40
    assert plan_docs.HEAD + "".join(rows) in page


def test_time_and_cost_of_a_plan() -> None:
    turns = Plan(name="x", arms=(ArmPlan(kind=ArmKind.COLD, seconds=3600), ArmPlan(kind=ArmKind.HOT)))  # fmt: skip
    assert turns.busy_hours == 9
    own = Plan(name="x", arms=(ArmPlan(kind=ArmKind.COLD, hosts=1), ArmPlan(kind=ArmKind.HOT, hosts=3)), budget=BudgetPlan(hours=10, price=2.0))  # fmt: skip
    assert (own.busy_hours, own.host_count, own.cost) == (8, 4, 80)
