"""A program that keeps starting short-lived processes: each fork, exec and exit costs more than their work.

The processes are gone before anything can read them, and their names often differ: only the kernel's records
of forks lead to the program that starts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _core_shares, _saturation
from overnight.model.finding import Answer, Need, Subject
from overnight.model.selection import Selection, Window
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.queries import case as cases
    from overnight.queries import processes

KIND = "process.spawn_storm"
MAX_CORES = 3
# A second: shell loops and timers start one or two, a busy build about ten on each core.
MIN_RATE = 20.0
TIMES = 3.0  # as many as in the baseline; a slow growth is not a storm
MIN_SECONDS = _core_shares.MIN_SECONDS
# Cores that the launcher and its children added: of the saturated core, else of all cores together.
MIN_OF_CORE, MIN_OF_HOST = _core_shares.MIN_ADDED, 0.3
MAX_NAMES = 4


class SpawnStorm(_base.Detector):
    name = "spawn-storm"
    needs = (Need.PROFILES,)
    clears_by = ((Need.PROFILES,),)

    def examine(self, case: cases.Case) -> Answer:
        now = case.spawns(case.window)
        if not now.recorded.any():
            text = "the processes that were started around the event were not recorded"
            raise _base.MissingError(text, Need.PROFILES)
        try:
            stretches = _saturation.find_saturation(case).stretches[:MAX_CORES]
        except _base.MissingError:
            stretches = ()
        places: list[tuple[Window, int | None]] = [
            (each.until(case.event).window, each.core) for each in stretches
        ]
        drafts = [draft for place in places for draft in _examine(case, *place)]
        if not drafts and (storm := _find_storm(now)) is not None:
            drafts = _examine(case, storm, None)
        most = max((now.rate(launcher) for launcher in now.launchers), default=0.0)
        clear = (
            f"no program started more than {MIN_RATE:.0f} processes a second, {TIMES:.0f} times as many as in the"
            f" baseline, and used the cores with them; the most were {most:.1f} a second"
        )
        return self.answer(drafts, clear=clear)


def _find_storm(spawns: processes.Spawns) -> Window | None:
    """Return the longest run of seconds in which the busiest launcher starts many processes."""
    many = [launcher.started >= MIN_RATE for launcher in spawns.launchers[:1]]
    if not many or many[0].sum() < _saturation.SECONDS:
        return None
    seconds = spawns.first + _saturation.longest_run(many[0])
    return Window(int(seconds[0]) * SECOND_US, int(seconds[-1] + 1) * SECOND_US)


def _examine(case: cases.Case, window: Window, core: int | None) -> list[_base.Draft]:
    """Find the storms of a window that took a core, or without one the host's cores."""
    chosen = Selection(cores=() if core is None else (core,))
    spawns, before = case.spawns(window, chosen), case.spawns(case.baseline, chosen)
    one_core = Selection(cores=(core if core is not None else 0,))
    capacity, _ = case.capacity(window, one_core)
    capacity_before, _ = case.capacity(case.baseline, one_core)
    if not spawns.recorded.any() or capacity <= 0:
        return []
    known = before.recorded.sum() >= MIN_SECONDS and capacity_before > 0
    drafts = []
    for launcher in spawns.launchers:
        rate = spawns.rate(launcher)
        if rate < MIN_RATE:
            break  # the others start fewer
        same = next((each for each in before.launchers if each.actor == launcher.actor), None)
        rate_before = before.rate(same) if same else 0.0
        used = (launcher.samples + launcher.child_samples) / capacity
        used_before = (
            (same.samples + same.child_samples) / capacity_before if same and known else 0.0
        )
        least = MIN_OF_HOST if core is None else MIN_OF_CORE
        if used - used_before < least or (known and rate < TIMES * rate_before):
            continue
        draft = _draft(case, window, core, launcher, rate, used, used_before, capacity)
        _compare(case, draft, rate, rate_before, known=bool(known))
        drafts.append(draft)
    return drafts


def _draft(
    case: cases.Case,
    window: Window,
    core: int | None,
    launcher: processes.Launcher,
    rate: float,
    used: float,
    used_before: float,
    capacity: float,
) -> _base.Draft:
    total = sum(child.started for child in launcher.children)
    names = ", ".join(
        f"{child.name} {100 * child.started / total:.0f} %"
        for child in launcher.children[:MAX_NAMES]
    )
    others = len(launcher.children) - MAX_NAMES
    names += f" and {others} more" if others > 0 else ""
    where = "" if core is None else f" of core {core}"
    added = used - used_before
    draft = _base.Draft(
        KIND,
        Subject.of_actor(case.host, launcher.actor, core=core),
        window,
        min(0.95, 0.6 + 0.4 * added),
        f"{launcher.actor} started {rate:.0f} processes a second ({names}); with them it used"
        f" {used:.2f} cores{where}",
        magnitude={
            "spawns_per_second": rate,
            "cores_burnt": used,
            "cores_before": used_before,
            "cores_added": added,
        },
    )
    look = _base.command("top processes", window, case.host, "--who")
    draft.support(
        f"{launcher.actor} (pid {', '.join(map(str, launcher.pids[:MAX_NAMES]))}) started {total} processes:"
        f" {names}",
        "profiles",
        look=look,
        started=total,
        started_per_second=round(rate, 1),
        children=", ".join(child.name for child in launcher.children[:MAX_NAMES]),
    )
    draft.support(
        f"its short-lived children have {launcher.child_samples} samples{where} in {window.seconds:.0f} s"
        f" ({launcher.child_samples / capacity:.2f} cores), {launcher.actor.process} itself {launcher.samples}",
        "profiles",
        look=look,
        samples_of_children=launcher.child_samples,
        samples_of_launcher=launcher.samples,
        cores_of_children=round(launcher.child_samples / capacity, 3),
    )
    return draft


def _compare(
    case: cases.Case, draft: _base.Draft, rate: float, before: float, *, known: bool
) -> None:
    """Weigh the rate against that of the baseline."""
    if not known:
        text = "the processes that it started before were not recorded: it may always start as many"
        draft.oppose(text, "profiles", factor=0.7)
        return
    draft.magnitude["spawns_before"] = before
    draft.support(
        f"in the baseline ({case.baseline_text}) it started {before:.1f} processes a second, now {rate:.1f}",
        "profiles",
        window=case.baseline,
        started_per_second=round(rate, 1),
        started_per_second_before=round(before, 1),
    )


DETECTORS = (SpawnStorm(),)
