from __future__ import annotations

import pathlib
import re
import shlex

import captures
import casebook
import pytest

from overnight.app import diagnose
from overnight.detectors import culprit
from overnight.model.finding import Answer, Need, Status, Subject
from overnight.queries import processes

DETECTOR = culprit.DETECTORS[0]
AT = casebook.EVENT_SECOND
WALK = (
    captures.user("main", "/usr/bin/kubelet"),
    captures.kernel("do_syscall_64"),
    captures.kernel("memcg_numa_stat_show"),
    captures.kernel("mem_cgroup_nr_lru_pages"),
)
STARVED = {"interface": "eth0", "queue": 5, "since_napi_us": 6_000_000}


def pinned(second: int, core: int) -> tuple[float, float, float]:
    return (0.0, 1.0, 0.0) if core == 2 and AT - 6 <= second < AT else (0.05, 0.0, 0.0)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path).cpu(pinned)


def kinds(answer: Answer) -> list[str]:
    return [finding.kind for finding in answer.findings]


def test_the_process_on_the_core_and_the_starved_queue_are_found(home: casebook.Home) -> None:
    before = casebook.busy(AT - 60, AT - 6, 2, "trainer", (captures.user("forward"),))
    home.stacks(
        before + casebook.busy(AT - 6, AT, 2, "kubelet", WALK, unit="kubelet.service")
    ).queues({4: 1, 5: 2})
    home.event(fields=STARVED)
    process, queue = DETECTOR.look(home.case()).findings
    assert process.subject == Subject(
        "db-7", 2, "kubelet.service", "kubelet", "mem_cgroup_nr_lru_pages"
    )
    assert process.magnitude["share_of_core_samples"] == 1.0
    assert process.magnitude["cores_burnt"] == pytest.approx(1.0)
    assert process.magnitude["kernel_share"] == 1.0
    assert process.evidence[1].values["path"] == (
        "kubelet;main;do_syscall_64;memcg_numa_stat_show;mem_cgroup_nr_lru_pages"
    )
    assert "--process '^kubelet$'" in process.evidence[0].look
    assert queue.kind == "net.queue_starved"
    assert queue.subject == Subject("db-7", 2, interface="eth0", queue=5)
    assert "6 s since the last poll" in queue.evidence[1].text


def test_the_evidence_says_which_process_it_is_and_who_started_it(
    home: casebook.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "collect.py (python3)"
    home.stacks(casebook.busy(AT - 6, AT, 2, name, WALK, unit="kube-system/agent")).event(core=2)
    known = processes.Process(
        4711, 1_700_000_000_000_000, 1, 9, "python3", "/usr/bin/python3.11",
        "python3 /opt/collect.py --token (masked)", "ci", "/kubepods/pod7f", "3fa9", "kube-system/agent",
        "", ("nightly.sh (bash)", "cron"),
    )  # fmt: skip
    case = home.case()
    monkeypatch.setattr(case, "processes_of", lambda actor, window: (known, known))
    (finding,) = DETECTOR.look(case).findings
    (who,) = (each for each in finding.evidence if "pid" in each.values)
    assert who.text == (
        "collect.py (python3, kube-system/agent) is pid 4711 and 1 more, user ci, started"
        " 2023-11-14T22:13:20.000Z by nightly.sh (bash) ← cron: python3 /opt/collect.py --token (masked)"
    )
    assert who.values["ancestors"] == "nightly.sh (bash), cron"
    assert who.values["pod"] == "kube-system/agent"
    assert who.look.endswith("--who")


@pytest.mark.parametrize("process", ["it's", "a';reboot;'", "$(reboot)", "a b.c"])
def test_the_command_in_the_evidence_is_safe_to_paste(home: casebook.Home, process: str) -> None:
    home.stacks(casebook.busy(AT - 6, AT, 2, process, WALK)).event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    words = shlex.split(finding.evidence[0].look)
    assert words[words.index("--process") + 1 :] == [f"^{re.escape(process)}$"]


def test_a_queue_without_a_starvation_report_is_not_starved(home: casebook.Home) -> None:
    home.stacks(casebook.busy(AT - 6, AT, 2, "kubelet", WALK)).queues({5: 2})
    home.event("cpu.core_pinned", core=2)
    assert kinds(DETECTOR.look(home.case())) == ["cpu.culprit"]


def test_an_event_of_another_queue_does_not_concern_this_queue(home: casebook.Home) -> None:
    home.stacks(casebook.busy(AT - 6, AT, 2, "kubelet", WALK)).queues({4: 1, 5: 2})
    home.event(fields={"interface": "eth0", "queue": 4})
    answer = DETECTOR.look(home.case())
    assert kinds(answer) == ["cpu.culprit"]
    assert answer.findings[0].against


def test_counters_show_starvation_when_the_event_does_not(home: casebook.Home) -> None:
    home.stacks(casebook.busy(AT - 6, AT, 2, "kubelet", WALK)).queues({5: 2})
    home.numbers(
        "ethtool",
        ("value",),
        lambda second: {"eth0 suspected_poll_starvation": (int(second >= AT),)},
        range(0, 960, 10),
    )
    home.event("cpu.core_pinned", core=2)
    answer = DETECTOR.look(home.case())
    assert kinds(answer) == ["cpu.culprit", "net.queue_starved"]
    assert answer.findings[1].confidence < 0.7


@pytest.mark.parametrize("entry", ["handle_softirqs", "asm_sysvec_call_function"])
def test_interrupts_are_not_attributed_to_the_interrupted_process(
    home: casebook.Home, entry: str
) -> None:
    path = (captures.user("main"), captures.kernel(entry), captures.kernel("flush_tlb_func"))
    home.stacks(casebook.busy(AT - 6, AT, 2, "victim", path))
    home.event(core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert "softirqs: 100 %" in answer.why


@pytest.mark.parametrize(
    ("kind", "culprits"),
    [("net.driver_reset", ["solver"]), ("cpu.core_pinned", ["late", "solver"])],
)
def test_what_ran_after_the_event_did_not_cause_it(
    tmp_path: pathlib.Path, kind: str, culprits: list[str]
) -> None:
    """A watch dates its event to the begin of the stretch, a driver resets at the end of its wait."""
    home = casebook.Home(tmp_path).cpu(
        lambda second, core: (
            (1.0, 0.0, 0.0) if core == 2 and AT - 6 <= second < AT + 8 else (0.05, 0, 0)
        )
    )
    home.stacks(
        casebook.busy(AT - 6, AT, 2, "solver", (captures.user("solve"),))
        + casebook.busy(AT, AT + 8, 2, "late", (captures.user("copy"),))
    )
    home.event(kind, AT - 6 if kind == "cpu.core_pinned" else AT, core=2)
    found = DETECTOR.look(home.case()).findings
    assert sorted(each.subject.process for each in found) == culprits


def test_two_processes_that_share_the_core_are_both_reported(home: casebook.Home) -> None:
    home.stacks(
        casebook.busy(AT - 6, AT - 2, 2, "big", WALK)
        + casebook.busy(AT - 2, AT, 2, "small", (captures.user("spin"),))
    )
    home.event(core=2)
    findings = DETECTOR.look(home.case()).findings
    assert [(finding.subject.process, finding.subject.function) for finding in findings] == [
        ("big", "mem_cgroup_nr_lru_pages"),
        ("small", "spin"),
    ]
    assert [finding.evidence[0].text for finding in findings] == [
        f"{name} samples of core 2 in those 6 s ({share} %); {kernel} % of them are in the kernel; 0 samples were lost"
        for name, share, kernel in (
            ("big has 400 of the 600", 67, 100),
            ("small has 200 of the 600", 33, 0),
        )
    ]


def shared(home: casebook.Home, before: int, now: int, rest: str = "hog") -> Answer:
    """A worker with `before` samples a second, then `now` in the incident; `rest` has the others."""
    forward = (captures.user("forward"),)
    home.stacks(
        casebook.busy(AT - 700, AT - 6, 2, "worker", forward, hertz=before)
        + casebook.busy(AT - 6, AT, 2, "worker", forward, hertz=now)
        + casebook.busy(AT - 6, AT, 2, rest, WALK, hertz=100 - now)
    )
    home.event(core=2)
    return DETECTOR.look(home.case())


@pytest.mark.parametrize("now", [30, 60])
def test_a_process_that_had_the_core_and_now_waits_is_not_the_culprit(
    home: casebook.Home, now: int
) -> None:
    (finding,) = shared(home, 80, now).findings
    assert finding.subject.process == "hog"
    assert finding.magnitude["cores_burnt"] == pytest.approx((100 - now) / 100, abs=0.02)
    assert finding.magnitude["cores_added"] == pytest.approx((100 - now) / 100, abs=0.02)
    assert finding.confidence > 0.9, "it took all that was left, and more"
    texts = [entry.text for entry in finding.evidence]
    assert any(text.startswith("hog used") and "0.00 in the baseline" in text for text in texts)
    waits = [entry for entry in finding.evidence if "worker had to wait" in entry.text]
    assert waits[0].values["cores_before"] == pytest.approx(0.8, abs=0.02)


def test_the_process_that_added_most_comes_first(
    home: casebook.Home,
) -> None:
    findings = shared(home, 35, 55).findings
    assert [finding.subject.process for finding in findings] == ["hog", "worker"]
    assert findings[0].confidence > findings[1].confidence


def test_without_any_increase_the_confidence_is_low(home: casebook.Home) -> None:
    home.stacks(casebook.busy(AT - 700, AT, 2, "worker", (captures.user("forward"),)))
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.confidence <= 0.4
    assert "used 1.00 of the core, and 1.00 in the baseline" in finding.against[0].text
    assert "cores_added" not in finding.magnitude


SOFT = (captures.kernel("handle_softirqs"),)


@pytest.mark.parametrize(
    ("first", "before", "now", "culprits"),
    [
        pytest.param(0, (30, 0, 0), (30, 70, 0), ["hog"], id="a hog beside a steady process"),
        pytest.param(0, (30, 0, 0), (30, 0, 65), [], id="a steady process in a softirq storm"),
        pytest.param(0, (30, 0, 60), (30, 0, 65), ["worker"], id="softirqs as in the baseline"),
        pytest.param(
            0, (30, 60, 0), (40, 60, 0), ["hog", "worker"], id="a rise too small to matter"
        ),
        pytest.param(0, (80, 0, 0), (40, 0, 0), [], id="it had to wait"),
        pytest.param(0, (24, 76, 0), (24, 76, 0), ["hog"], id="less than a quarter, no rise"),
        pytest.param(AT - 30, (0, 0, 0), (22, 78, 0), ["hog"], id="no baseline"),
        pytest.param(AT - 30, (0, 0, 0), (3, 0, 0), [], id="few samples"),
    ],
)
def test_near_misses(
    home: casebook.Home,
    first: int,
    before: tuple[int, int, int],
    now: tuple[int, int, int],
    culprits: list[str],
) -> None:
    """Samples a second of a worker, a hog and softirqs, before the incident and in it."""
    paths = {"worker": (captures.user("forward"),), "hog": WALK, "swapper": SOFT}
    samples = []
    for (process, path), usual, sampled in zip(paths.items(), before, now, strict=True):
        if usual:
            samples += casebook.busy(AT - 700, AT - 6, 2, process, path, hertz=usual)
        if sampled:
            samples += casebook.busy(AT - 6, AT, 2, process, path, hertz=sampled)
    home.stacks(samples, begin=first)
    home.event(core=2)
    findings = DETECTOR.look(home.case()).findings
    assert [finding.subject.process for finding in findings] == culprits


def test_a_process_that_is_constantly_interrupted_is_waiting(home: casebook.Home) -> None:
    forward, soft = (captures.user("forward"),), (captures.kernel("handle_softirqs"),)
    home.stacks(
        casebook.busy(AT - 700, AT - 6, 2, "worker", forward, hertz=80)
        + casebook.busy(AT - 6, AT, 2, "worker", forward, hertz=40)
        + casebook.busy(AT - 6, AT, 2, "worker", soft, hertz=60)
    )
    home.event(core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert "worker had to wait" in answer.why


def test_without_samples_only_the_process_that_uses_more_is_the_culprit(
    home: casebook.Home,
) -> None:
    def rows(second: int) -> dict[str, tuple[int, ...]]:
        late = max(0, min(6, second - AT + 6))
        return {
            "70 worker": (80 * second - 40 * late, 0, 9, 2, 0, 82, 0, 0),
            "71 steady": (26 * second, 0, 9, 2, 0, 82, 0, 0),
            "77 hog": (60 * late, 0, 9, 2, 0, 82, 0, 0),
        }

    home.numbers("processes", casebook.PROCESSES, rows, range(AT - 400, AT + 30))
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.subject.process == "hog"
    assert finding.magnitude["cores_added"] == pytest.approx(0.6, abs=0.1)
    assert any("worker had to wait" in entry.text for entry in finding.evidence)


def test_without_samples_the_process_on_the_core_has_low_confidence(home: casebook.Home) -> None:
    home.numbers(
        "processes",
        casebook.PROCESSES,
        lambda second: {
            "77 hog": (0, 100 * max(0, min(6, second - AT + 6)), 9, 2, 0, 82, 0, 0),
            "78 elsewhere": (100 * second, 0, 9, 1, 0, 82, 0, 0),
        },
        range(AT - 30, AT + 30),
    )
    home.event(core=2)
    answer = DETECTOR.look(home.case())
    (finding,) = answer.findings
    assert finding.subject == Subject("db-7", 2, process="hog")
    assert finding.magnitude["cores_burnt"] == pytest.approx(1.0, abs=0.2)
    assert finding.magnitude["kernel_share"] == 1.0
    assert finding.evidence[0].text == (
        "process 77 hog was seen on core 2 in these seconds and used 600 ticks, 600 of them in the kernel"
    )
    assert finding.confidence <= 0.5
    assert "not sampled" in finding.against[0].text
    assert "not sampled" in answer.why


def test_no_samples_and_no_processes_is_no_data(home: casebook.Home) -> None:
    home.event(core=2)
    assert DETECTOR.look(home.case()).status is Status.NO_DATA


def test_damaged_samples_are_no_data_and_not_clear(home: casebook.Home) -> None:
    home.stacks(casebook.busy(AT - 6, AT, 2, "kubelet", WALK))
    home.event(core=2)
    for path in home.folder.rglob("samples.parquet"):
        path.write_bytes(b"PAR1 no more")
    (answer,) = diagnose.run_detectors(home.case(), (DETECTOR,))
    assert answer.status is Status.NO_DATA
    assert Need.PROFILES in answer.missing
