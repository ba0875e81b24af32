"""What a culprit did: shares, counters, several mechanisms at once, and none."""

from __future__ import annotations

import pathlib

import captures
import casebook
import pytest

from overnight.app import diagnose
from overnight.detectors import culprit, mechanisms
from overnight.model.finding import Answer, Finding, Need, Status

DETECTOR = mechanisms.DETECTORS[0]
AT = casebook.EVENT_SECOND
MAIN = captures.user("main")
SMAPS = (MAIN, *map(captures.kernel, ("vfs_read", "seq_read_iter", "show_smap", "smaps_account")))
FAULTS = (MAIN, *map(captures.kernel, ("exc_page_fault", "handle_mm_fault", "do_anonymous_page")))
HUGE = (MAIN, *map(captures.kernel, ("exc_page_fault", "do_huge_pmd_anonymous_page", "folio_zero_user")))  # fmt: skip
SENDS = tuple(map(captures.kernel, ("__sys_sendto", "udp_sendmsg", "ip_finish_output2")))
RECEIVES = tuple(map(captures.kernel, ("handle_softirqs", "net_rx_action", "process_backlog")))
OTHER = (MAIN, captures.user("compute"))
NAME, UNIT = "collect_metrics.py (python3)", "kube-system/node-agent"
THP = ("thp_fault_alloc", "thp_collapse_alloc", "thp_split_page", "pgfault")


def pinned(second: int, core: int) -> tuple[float, float, float]:
    return (0.5, 0.5, 0.0) if core == 2 and AT - 6 <= second < AT else (0.05, 0.0, 0.0)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path).cpu(pinned)


def mix(*parts: tuple[tuple[captures.Function, ...], float]) -> list[captures.Sample]:
    """Return six seconds of a saturated core, divided between these paths."""
    samples, begin = [], float(AT - 6)
    for path, share in parts:
        samples += casebook.busy(begin, begin + 6 * share, 2, NAME, path, unit=UNIT)
        begin += 6 * share
    return samples


def look(home: casebook.Home, *parts: tuple[tuple[captures.Function, ...], float]) -> Answer:
    home.stacks(mix(*parts)).event("cpu.core_pinned", core=2)
    return DETECTOR.look(home.case())


def only(answer: Answer) -> Finding:
    (finding,) = answer.findings
    return finding


def test_the_mechanism_of_the_culprit_is_found(home: casebook.Home) -> None:
    finding = only(look(home, (SMAPS, 0.8), (OTHER, 0.2)))
    assert finding.kind == "mechanism.smaps-reading"
    assert finding.subject.process == NAME
    assert (finding.subject.unit, finding.subject.core) == (UNIT, 2)
    assert finding.subject.function == "smaps_account"
    assert finding.magnitude["mechanism_share"] == pytest.approx(0.8, abs=0.01)
    assert finding.magnitude["cores_burnt"] == pytest.approx(0.8, abs=0.02)
    assert finding.evidence[0].values["path"] == "main > vfs_read > seq_read_iter > show_smap > smaps_account"  # fmt: skip
    assert finding.evidence[0].look.startswith("overnight flame -b ")
    assert r"--process '^collect_metrics\.py\ \(python3\)$'" in finding.evidence[0].look


@pytest.mark.parametrize(("share", "found"), [(0.16, False), (0.24, True)])
def test_a_mechanism_needs_its_share_of_the_samples(
    home: casebook.Home, share: float, found: bool
) -> None:
    answer = look(home, (SMAPS, share), (OTHER, 1 - share))
    assert (answer.status is Status.FOUND) == found
    if not found:
        assert "unknown mechanism of collect_metrics.py (python3, kube-system/node-agent) on core 2" in answer.why  # fmt: skip
        assert answer.why.endswith("main > compute")


def test_counters_raise_or_lower_the_confidence(tmp_path: pathlib.Path) -> None:
    confidences = {}
    for rate in (None, 0, 500):
        home = casebook.Home(tmp_path / str(rate)).cpu(pinned)
        if rate is not None:
            home.numbers("vmstat", THP, lambda second, rate=rate: {"": (rate * second, 0, 0, 0)}, range(AT - 60, AT + 30))  # fmt: skip
        finding = only(look(home, (HUGE, 0.9), (OTHER, 0.1)))
        assert finding.kind == "mechanism.huge-pages"
        confidences[rate] = finding.confidence
        assert len(finding.against) == (rate == 0)
        assert len(finding.evidence) == 1 + (rate == 500)
    assert confidences[0] < 0.5 * confidences[None] < confidences[None] < confidences[500]


def test_a_counter_of_the_core_is_that_of_the_culprits_core(tmp_path: pathlib.Path) -> None:
    napi = (captures.kernel("napi_threaded_poll"), captures.kernel("__napi_poll"))
    for core, opposed in ((2, False), (1, True)):
        home = casebook.Home(tmp_path / str(core)).cpu(pinned)
        rows = {str(number): 0 for number in range(4)}
        home.numbers("softirqs", ("NET_RX",), lambda second, core=core, rows=rows: {key: (10_000 * second if key == str(core) else 0,) for key in rows}, range(AT - 60, AT + 30))  # fmt: skip
        finding = only(look(home, (napi, 1.0)))
        assert finding.kind == "mechanism.receive-softirq"
        assert bool(finding.against) == opposed


def test_a_tracer_of_its_own_child_is_a_tracer(home: casebook.Home) -> None:
    traces = (MAIN, *map(captures.kernel, ("__x64_sys_ptrace", "arch_ptrace", "ptrace_request")))
    stops = (MAIN, *map(captures.kernel, ("syscall_trace_enter", "ptrace_stop", "schedule")))
    answer = look(home, (stops, 0.6), (traces, 0.16), (OTHER, 0.24))
    assert answer.findings[0].kind == "mechanism.ptrace"


def test_several_mechanisms_come_in_order(home: casebook.Home) -> None:
    answer = look(home, (FAULTS, 0.4), (SMAPS, 0.6))
    assert [finding.kind for finding in answer.findings] == ["mechanism.smaps-reading", "mechanism.page-faults"]  # fmt: skip
    first, second = answer.findings
    assert first.confidence > second.confidence


def test_a_specific_mechanism_comes_before_a_larger_general_one(home: casebook.Home) -> None:
    shrink = tuple(map(captures.kernel, ("__lookup_slow", "d_alloc_parallel", "do_shrink_slab")))
    lookup = tuple(map(captures.kernel, ("path_lookupat", "__lookup_slow", "ext4_lookup")))
    answer = look(home, (shrink, 0.21), (lookup, 0.4), (OTHER, 0.39))
    assert [finding.kind for finding in answer.findings] == ["mechanism.shrinkers", "mechanism.negative-dentries"]  # fmt: skip


def test_a_contradicted_mechanism_comes_last(home: casebook.Home) -> None:
    home.numbers("vmstat", THP, lambda second: {"": (0, 0, 0, 9000 * second)}, range(AT - 60, AT + 30))  # fmt: skip
    answer = look(home, (HUGE, 0.6), (FAULTS, 0.4))
    assert [finding.kind for finding in answer.findings] == ["mechanism.page-faults", "mechanism.huge-pages"]  # fmt: skip


def test_softirqs_that_interrupt_it_are_not_its_work(home: casebook.Home) -> None:
    finding = only(look(home, ((MAIN, *RECEIVES), 0.4), (SMAPS, 0.6)))
    assert finding.kind == "mechanism.smaps-reading"
    assert finding.magnitude["mechanism_share"] == 1.0


def test_packets_to_its_own_host_are_its_work(home: casebook.Home) -> None:
    """Of a sender to loopback, most samples are in the receive softirq that it runs itself."""
    answer = look(home, ((MAIN, *SENDS, *RECEIVES), 0.8), ((MAIN, *SENDS), 0.2))
    assert only(answer).kind == "mechanism.udp-loopback"
    assert only(answer).magnitude["mechanism_share"] == pytest.approx(0.8, abs=0.01)


def test_forwarded_packets_are_not_its_work(home: casebook.Home) -> None:
    answer = look(home, ((MAIN, *RECEIVES, *SENDS[2:]), 0.4), (SMAPS, 0.6))
    assert only(answer).magnitude["mechanism_share"] == 1.0


def test_samples_of_other_processes_and_cores_do_not_count(home: casebook.Home) -> None:
    samples = mix((SMAPS, 1.0)) + casebook.busy(AT - 6, AT, 1, NAME, FAULTS, unit=UNIT)
    samples += casebook.busy(AT - 6, AT, 2, "other", FAULTS, hertz=10)
    home.stacks(samples).event("cpu.core_pinned", core=2)
    finding = only(DETECTOR.look(home.case()))
    assert finding.magnitude["mechanism_share"] == 1.0


def test_few_samples_are_no_mechanism(home: casebook.Home) -> None:
    home.stacks(casebook.busy(AT - 6, AT, 2, "idle", OTHER, hertz=10) + casebook.busy(AT - 6, AT, 2, "a", SMAPS, hertz=2))  # fmt: skip
    home.event("cpu.core_pinned", core=2)
    assert DETECTOR.look(home.case()).findings == ()


def test_without_a_saturated_core_it_is_clear(tmp_path: pathlib.Path) -> None:
    home = casebook.Home(tmp_path).cpu()
    home.stacks(mix((SMAPS, 1.0))).event("cpu.core_pinned", core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert answer.why == "no process saturated a core"


def test_without_stacks_there_is_no_data(home: casebook.Home) -> None:
    home.numbers(
        "processes",
        casebook.PROCESSES,
        lambda second: {"7 a": (0, 100 * max(0, second - AT + 6), 1, 2, 0, 82, 0, 0)},
        range(AT - 60, AT + 30),
    )
    home.event("cpu.core_pinned", core=2)
    answer = DETECTOR.look(home.case())
    assert (answer.status, answer.missing) == (Status.NO_DATA, (Need.PROFILES,))


def test_culprits_are_computed_once(home: casebook.Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.stacks(mix((SMAPS, 1.0))).event("cpu.core_pinned", core=2)
    case = home.case()
    culprit.DETECTORS[0].look(case)
    monkeypatch.setattr(case, "ran", None)
    assert DETECTOR.look(case).status is Status.FOUND


def test_the_verdict_states_actor_and_mechanism(home: casebook.Home) -> None:
    event = home.event("cpu.core_pinned", core=2)
    home.stacks(mix((SMAPS, 0.9), (OTHER, 0.1))).case()
    verdict, _ = diagnose.diagnose_event(home.folder, event)
    text = verdict.narrative
    who = "collect_metrics.py (python3, kube-system/node-agent)"
    assert text.headline == f"Cause found: {who} reads memory maps of processes (/proc/*/smaps, /proc/*/maps)"  # fmt: skip
    assert text.root_cause.startswith(f"{who} reads memory maps of processes")
    assert text.mechanism.startswith(f"{who} was the top consumer of core 2")
    assert text.fix.startswith(f"Make {NAME} read memory maps less often")
    assert text.fix_command.startswith("overnight flame -b ")
    assert [step.kind for step in verdict.chain.steps] == ["mechanism.smaps-reading", "cpu.culprit", "cpu.core_saturated", "cpu.core_pinned"]  # type: ignore[union-attr]  # fmt: skip


def test_an_unknown_mechanism_shows_the_call_path_and_the_next_command(home: casebook.Home) -> None:
    event = home.event("cpu.core_pinned", core=2)
    home.stacks(mix((OTHER, 1.0))).case()
    verdict, _ = diagnose.diagnose_event(home.folder, event)
    assert "is not known: unknown mechanism, top call path main > compute." in verdict.narrative.root_cause  # fmt: skip
    (command,) = (step.command for step in verdict.next if "flame" in step.command)
    assert command.startswith("overnight flame -b ")
    assert " --core 2 " in command
    assert command.endswith(r"--process '^collect_metrics\.py\ \(python3\)$'")
