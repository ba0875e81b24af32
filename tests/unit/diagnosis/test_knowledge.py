from __future__ import annotations

import pathlib
import re

import findings
import pytest

from overnight import app, errors
from overnight.app import diagnose
from overnight.detectors import mechanism_table
from overnight.diagnosis import conditions, decision, knowledge
from overnight.interfaces.cli import commands

KIND = '[[kind]]\nkind = "my.kind"\nname = "mine"\nexplains = 0.9\n'
LINK = '[[link]]\ncause = "my.kind"\neffect = "cpu.core_saturated"\nwhy = "so"\nbase = 0.9\n'
TESTED = '[[experiment]]\nroot = "my.kind"\ntitle = "t"\nconfirm = "c"\nrefute = "r"\nsteps = [{ what = "w" }]\n'
WRONG = {
    "no TOML": ("[[link", "invalid TOML"),
    "no cause": ('[[link]]\neffect = "a"\nwhy = "so"\nbase = 1.0', "`cause` or `effect` is missing"),
    "unknown kind": ('[[link]]\ncause = "a.b"\neffect = "a.c"\nwhy = "so"\nbase = 1.0', "defines a.b"),
    "base": (KIND + LINK.replace("0.9\n", "7\n").replace('"mine"\nexplains = 7', '"mine"\nexplains = 0.9'), "`base` is 7"),
    "field": (KIND + LINK + "bases = 2", "`bases` is not a field"),
    "holds": (KIND + LINK + 'when = [{ holds = "same_moon" }]', "same_moon"),
    "need": (KIND + LINK + 'when = [{ holds = "same_core", need = "maybe" }]', "maybe"),
    "magnitude of nothing": (KIND + LINK + 'when = [{ holds = "magnitude" }]', "a magnitude needs it"),
    "uneven": (KIND + LINK + 'when = [{ holds = "magnitude", cause = ["x", "y"], effect = "x" }]', "different lengths"),
    "fits": (KIND + LINK + 'when = [{ holds = "magnitude", cause = "x", fits = [2, 1] }]', "`fits`"),
    "possible": (KIND + LINK + 'when = [{ holds = "magnitude", cause = "x", fits = [0.1, 1] }]', "inside"),
    "fleet of nothing": ('[[fleet]]\nsays = "fleet.drift"\nwhy = "so"', "`of` is missing"),
    "fleet of an unknown kind": ('[[fleet]]\nsays = "fleet.drift"\nwhy = "so"\nof = "a.b"', "defines a.b"),
    "fleet doubts nothing": (KIND + '[[fleet]]\nsays = "f"\nwhy = "so"\ndoubt = "no"\nof = "my.kind"', "needs a `number`"),
    "one_of": (KIND + LINK + 'one_of = ["same_core"]', "`one_of` names same_core"),
    "itself": (KIND + LINK.replace("cpu.core_saturated", "my.kind"), "cannot cause itself"),
    "pattern": (KIND + LINK.replace("cpu.core_saturated", "cpu.*"), "can only match events"),
    "weight": (KIND + LINK + 'when = [{ holds = "same_core", weight = "much" }]', "not a number"),
    "no steps": (KIND + '[[fix]]\nroot = "my.kind"\ntitle = "t"\n', "no steps"),
    "no refute": (KIND + '[[experiment]]\nroot = "my.kind"\ntitle = "t"\nconfirm = "c"\nsteps = [{ what = "w" }]', "`refute`"),
    "placeholder": (KIND + '[[fix]]\nroot = "my.kind"\ntitle = "t"\nsteps = [{ what = "w", command = "kill {pid}" }]', "{pid}"),
    "quotes": (KIND + '[[fix]]\nroot = "my.kind"\ntitle = "t"\nsteps = [{ what = "w", command = "kill \'{process}\'" }]', "inside quotes"),
    "change of a fix": (KIND + '[[fix]]\nroot = "my.kind"\ntitle = "t"\nchange = "purge"\nsteps = [{ what = "w" }]', "belongs to an experiment"),
    "unknown change": (KIND + TESTED + 'change = "restart {unit}"', "'restart' is not one of purge,"),
    "target of a change": (KIND + TESTED + 'change = "mask-unit {cgroup}"', "is not a service"),
    "words of a change": (KIND + TESTED + 'change = ["purge", "cap-cpu {unit}"]', "cap-cpu takes"),
    "second change": (KIND + TESTED + 'change = "mask-unit {unit} then {unit}"', "is not one of"),
    "placeholder of a change": (KIND + TESTED + 'change = "mask-unit {process}"', "use one of unit, cgroup"),
    "root": ('[[fix]]\nroot = "no.kind"\ntitle = "t"\nsteps = [{ what = "w" }]', "no.kind"),
    "table": ("nonsense = 1", "`nonsense`"),
    "not a list": ('link = "x"', "list of tables"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_entry_is_refused_and_named(name: str) -> None:
    text, says = WRONG[name]
    with pytest.raises(errors.UsageError) as refused:
        knowledge.parse_knowledge(text, "mine.toml", knowledge.known())
    assert "mine.toml" in refused.value.what
    assert says in f"{refused.value.what} {refused.value.why} {refused.value.todo}"
    assert refused.value.todo


def test_an_entry_is_named_by_its_number_and_kinds() -> None:
    text = KIND + LINK + LINK.replace("base = 0.9", "base = 9")
    with pytest.raises(errors.UsageError, match=r"link 2 \(my\.kind -> cpu\.core_saturated\)"):
        knowledge.parse_knowledge(text, "mine.toml", knowledge.known())


def test_a_users_file_adds_a_cause(tmp_path: pathlib.Path) -> None:
    """A user's kind, link and fix need no change in the code."""
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[kind]]\nkind = "gpu.poll"\nname = "a polling driver"\nexplains = 0.95\nsays = "{process} polls"\n'
        '[[link]]\ncause = "gpu.poll"\neffect = "cpu.core_saturated"\nwhy = "it polls"\nbase = 0.95\n'
        'when = [{ holds = "same_core", weight = 2, need = "holds" }]\n'
        '[[fix]]\nroot = "gpu.poll"\ntitle = "let {process} sleep"\nsteps = [{ what = "w", command = "kill -s {process}" }]\n'
    )
    polls = findings.make_finding("gpu.poll", -6, 1, 0.9, process="poller", core=39)
    answers = findings.answers([*findings.unknown(), polls])
    assert decision.decide(findings.RESET, answers).chain.steps[0].kind == "cpu.culprit"
    verdict = decision.decide(findings.RESET, answers, known=knowledge.read_knowledge([file]))
    assert verdict.chain.steps[0].kind == "gpu.poll"
    assert verdict.narrative.fix == "Let poller sleep."
    assert verdict.fix[0].command == "kill -s poller"


def test_files_are_merged_with_the_built_in_knowledge_once(tmp_path: pathlib.Path) -> None:
    """`diagnose --knowledge FILE` used to double the 38 rules and the 2 fleet rules."""
    known, files = knowledge.known(), [tmp_path / "a.toml", tmp_path / "b.toml"]
    files[0].write_text(KIND + LINK)
    files[1].write_text('[[fleet]]\nsays = "fleet.drift"\nof = "my.kind"\nwhy = "so"\n')
    merged = knowledge.read_knowledge(files)
    assert len(merged.rules) == len(known.rules) + 1
    assert len(merged.fleet) == len(known.fleet) + 1
    assert merged.kinds.keys() == known.kinds.keys() | {"my.kind"}


def test_every_detector_is_registered_with_its_kind() -> None:
    """The title, headline and sentence of each kind are in the knowledge file."""
    registered = {kind.detector for kind in knowledge.known().kinds.values()}
    every = (*diagnose.discover_detectors(), *diagnose.discover_fleet_detectors())
    detectors = {detector.name for detector in every}
    assert detectors - registered == {"event"}
    for kind in knowledge.known().kinds.values():
        assert kind.title
        assert kind.headline
        assert kind.says.endswith(".")


def test_a_number_format_that_cannot_be_used_is_refused() -> None:
    for form in ("{value", "{other}", "{value:d}", "no number", "{value.__class__}"):
        with pytest.raises(errors.UsageError, match="number 1 is invalid"):
            knowledge.parse_knowledge(f'[[number]]\nname = "x"\nformat = "{form}"\n')


def test_events_closest_to_the_users_have_the_highest_damage() -> None:
    damage = knowledge.known().damage
    kinds = ["net.driver_reset", "gpu.xid", "task.hung", "net.driver_starved", "net.link_down", "cpu.core_pinned", "unit.restart"]  # fmt: skip
    assert [damage(kind) for kind in kinds] == sorted(map(damage, kinds), reverse=True)
    assert damage("net.driver_reset") > damage("net.tx_timeout") > damage("gpu.xid")


def test_a_users_fix_replaces_the_built_in_fix() -> None:
    text = '[[fix]]\nroot = "cpu.rt_hog"\ntitle = "call us"\nsteps = [{ what = "call" }]\n'
    known = knowledge.parse_knowledge(text, "mine.toml", knowledge.known())
    verdict = decision.decide(findings.RESET, findings.answers(findings.rt_hog()), known=known)
    assert [step.what for step in verdict.fix] == ["call"]


def test_other_text_in_angle_brackets_stays_in_an_entry_for_all_mechanisms() -> None:
    text = '[[kind]]\nkind = "mechanism.*"\nname = "<noun>, <misses>, <pid>"\nexplains = 0.9\n'
    kinds = knowledge.parse_knowledge(text, "mine.toml", knowledge.known()).kinds
    noun = next(each.noun for each in mechanism_table.mechanisms() if each.name == "smaps-reading")
    assert kinds["mechanism.smaps-reading"].name == f"{noun}, <misses>, <pid>"


def test_a_missing_file_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.UsageError, match=r"none\.toml"):
        knowledge.read_knowledge([tmp_path / "none.toml"])


def test_every_possible_root_has_a_fix_and_most_have_an_experiment() -> None:
    known = knowledge.known()
    roots = {kind for kind, entry in known.kinds.items() if entry.explains >= 0.6}
    assert roots - {fix.root for fix in known.fixes} == set()
    assert {experiment.root for experiment in known.experiments} >= {
        kind for kind in roots if kind not in ("memory.oom", "storage.fault", "limit.near")
    }


def test_texts_use_only_known_placeholders() -> None:
    known = knowledge.known()
    for remedy in (*known.fixes, *known.experiments):
        for text in (
            remedy.title,
            remedy.confirm,
            remedy.refute,
            *(f"{s.what} {s.expect}" for s in remedy.steps),
        ):
            assert set(knowledge.PLACEHOLDER.findall(text)) <= {
                *knowledge.SUBJECTS,
                *knowledge.ADDED,
            }, text


def test_overnight_commands_in_steps_exist() -> None:
    """The word after `overnight` is a command of this version."""
    existing = {module.__name__.rpartition(".")[2] for module in app.discover(commands)}
    known = knowledge.known()
    mentioned = {
        command
        for remedy in (*known.fixes, *known.experiments)
        for step in remedy.steps
        for command in re.findall(r"overnight (\w+)", f"{step.command} {step.expect}")
    }
    assert mentioned
    assert mentioned <= existing


def test_a_generic_chain_explains_at_most_the_culprit() -> None:
    assert knowledge.known().kinds["cpu.culprit"].explains <= 0.6


DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "diagnosis.md"


def test_the_example_in_the_document_works() -> None:
    text = DOCUMENT.read_text().partition("```toml\n")[2].partition("```")[0]
    known = knowledge.parse_knowledge(text, "docs/diagnosis.md", knowledge.known())
    assert "gpu.poll" in known.kinds


def test_the_document_names_every_condition_and_the_numbers_in_use() -> None:
    from overnight.diagnosis import calibration, chain, completeness

    text = DOCUMENT.read_text()
    assert [name for name in conditions.JUDGES if f"`{name}`" not in text] == []
    numbers = (
        chain.UNKNOWN_FIT, chain.MIN_STRENGTH, chain.PARSIMONY, calibration.CLAIMED, completeness.MIN_FACTOR,
        completeness.NO_DATA_FACTOR, completeness.FAILED_FACTOR, completeness.MIN_OF_DETECTORS,
        completeness.PERMISSION_FACTOR, *(
            knowledge.known().kinds[kind].explains
            for kind in ("cpu.core_saturated", "cpu.culprit", "memory.zombie_cgroups")
        ),
    )  # fmt: skip
    assert [number for number in numbers if f"{number:g}" not in text] == []
    assert f"{completeness.CLOSE:.0%}".replace("%", " %") in text
    # Fleet evidence changes the verdict; the document said both that it does and that it does not.
    assert (
        f"at most {max(rule.weight for rule in knowledge.known().fleet):g} of what is left" in text
    )
    assert "does not change" not in text


def test_an_outcome_is_every_kind_that_is_not_built_in() -> None:
    for pattern, kind, fits in (
        ("outcome", "job.failed", True),
        ("outcome", "invoice.late", True),
        ("outcome", "net.driver_reset", False),
        ("job.*", "job.failed", True),
        ("net.*", "job.failed", False),
        ("net.*", "net.driver_reset", True),
    ):
        assert knowledge.covers(pattern, kind) is fits, (pattern, kind)


def test_events_blame_nobody_and_outcomes_are_closest_to_what_users_felt() -> None:
    known = knowledge.known()
    assert known.is_effect("net.link_down")
    assert not known.is_effect("cpu.culprit")
    assert known.damage("invoice.late") == known.damage("job.failed") > known.damage("net.driver_reset") > 0  # fmt: skip


def test_only_a_fix_of_units_treats_a_unit_as_one_that_contains_others() -> None:
    steps = 'steps = [{ what = "x", command = "x", expect = "x" }]'
    text = f"""
[[kind]]
kind = "a"
name = "a"
explains = 0.9
[[fix]]
root = "a"
title = "x"
for_units = ["docker*"]
runtime = "docker"
{steps}
[[fix]]
root = "a"
title = "x"
for_units = ["kubelet*"]
{steps}
"""
    known = knowledge.parse_knowledge(text)
    assert [known.contains_others("a", unit) for unit in ("docker.service", "kubelet.service")] == [False, True]  # fmt: skip
