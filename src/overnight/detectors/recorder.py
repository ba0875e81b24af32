"""The recorder's own cost around the event, and whether it was the cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _core_shares, _saturation
from overnight.model.finding import Answer, Evidence, Need, Subject
from overnight.model.selection import Selection

if TYPE_CHECKING:
    from overnight.queries import case as cases

KIND = "recorder.cost"
# Of one core in the incident window; the promise of 1 % is for a night, which has quiet hours.
LIMIT = 0.03
# Of the saturated core: as for any other culprit.
CULPRIT_SHARE = 0.25
# Below that share the cost is sure, but not that it matters to the event.
NO_CULPRIT = 0.4


class RecorderCost(_base.Detector):
    """Found above 3 % of a core, or where the recorder held the saturated core.

    Its processes are those that the flight recorder names: others may have the same names, units and code.
    """

    name = "recorder"
    needs = (Need.RECORDER, Need.PROFILES)
    clears_by = ((Need.RECORDER,),)

    def examine(self, case: cases.Case) -> Answer:
        rates = case.rates("recorder", case.window, columns=("utime", "stime"))
        seconds = float(rates.seconds.sum())
        pids = [key.partition(" ")[0] for key in rates.keys]
        own = tuple(int(pid) for pid in pids if pid.isdecimal())
        if not seconds or not own:
            raise _base.MissingError(
                "the CPU time of the recorder's processes was not recorded around the event",
                Need.RECORDER,
            )
        ticks = sum(sum(rates.rises(column).values()) for column in rates.values)
        used = ticks / _core_shares.TICKS / seconds
        counted, values = _count_samples(case, own)
        held, core = _share_of_saturated_core(case, own)
        is_culprit = held >= CULPRIT_SHARE
        if used <= LIMIT and not is_culprit:
            return self.answer((), clear=f"the recorder used {used:.4f} cores: {counted}")
        draft = _base.Draft(
            KIND,
            Subject(host=case.host, core=core if is_culprit else None),
            case.window,
            0.9 if is_culprit else NO_CULPRIT,
            f"the recorder used {used:.2f} cores around the event"
            + (f" and {100 * held:.0f} % of core {core}" if is_culprit else ""),
        )
        draft.support(
            f"its processes ({', '.join(rates.keys)}) used {used:.2f} cores; {counted}",
            "recorder",
            look=_base.command("top processes", case.window, case.host),
            cores_burnt=round(used, 4),
            samples=values.get("samples"),
            busy_samples=values.get("busy_samples"),
            lost_samples=values.get("lost_samples"),
        )
        if not is_culprit:
            text = "no core was saturated"
            if core is not None and not values:
                text = f"its share of core {core}, the saturated core, is not known"
            elif core is not None:
                text = (
                    f"it had {100 * held:.0f} % of the samples of core {core}, the saturated core"
                )
            share = {"share_of_core_samples": round(held, 4)}
            draft.against.append(Evidence(text, "profiles", share))
        # Of the saturated core, or of one core where none was.
        draft.magnitude.update(
            cores_burnt=used, share_of_core_samples=used if core is None else held
        )
        return self.answer([draft], clear="")


def _count_samples(case: cases.Case, own: tuple[int, ...]) -> tuple[str, dict[str, int]]:
    """Return how many samples of the incident window are the recorder's, in words and as numbers."""
    if not case.has_profile(case.window):
        return "no stacks were sampled around the event", {}
    coverage = case.flame(case.window).coverage
    processes, _ = case.ran((case.window,), Selection(pids=own))
    samples = sum(process.samples + process.softirq for process in processes)
    return (
        f"{samples} of {coverage.samples} busy samples of the incident window ({coverage.lost} lost)",
        {"samples": samples, "busy_samples": coverage.samples, "lost_samples": coverage.lost},
    )


def _share_of_saturated_core(case: cases.Case, own: tuple[int, ...]) -> tuple[float, int | None]:
    """Return the recorder's share of the saturated core's samples, and the core; None: no core was."""
    try:
        stretches = _saturation.find_saturation(case).stretches
    except _base.MissingError:
        stretches = ()
    if not stretches:
        return 0.0, None
    stretch = stretches[0]
    processes, _ = case.ran((stretch.window,), Selection(cores=(stretch.core,), pids=own))
    _, total = _core_shares.read_core(case, stretch.window, stretch.core)
    held = sum(process.samples for process in processes)
    return (held / total if total else 0.0), stretch.core


DETECTORS = (RecorderCost(),)
