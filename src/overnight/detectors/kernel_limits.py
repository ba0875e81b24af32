"""Kernel tables that are nearly full: processes, open files, tracked connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.detectors import _base, _kernel_events
from overnight.model.finding import Answer, Need, Subject

if TYPE_CHECKING:
    from overnight.queries import case as cases

KIND = "limit.near"
# As in the watch: above these shares a burst reaches the limit.
MIN_SHARE = 0.70
MIN_SHARES = {"conntrack": 0.75}
FULL_SHARE = 0.95


class KernelLimits(_base.Detector):
    """The highest use of each table around the event."""

    name = "limits"
    needs = (Need.LIMITS,)
    clears_by = ((Need.LIMITS,),)
    rank_by = "used_share"

    def examine(self, case: cases.Case) -> Answer:
        window = _kernel_events.search_window(case)
        highest: dict[str, tuple[float, int, int]] = {}
        frames = list(case.ring.numbers(case.host, "limits", window.begin_us, window.end_us))
        if not frames:
            raise _base.MissingError(
                "kernel limits were not recorded around the event", Need.LIMITS
            )
        for frame in frames:
            for name in frame.keys:
                _, uses = frame.series(name, "used")
                _, maxima = frame.series(name, "maximum")
                for used, maximum in zip(uses, maxima, strict=True):
                    if maximum > 0:
                        use = (used / maximum, used, maximum)
                        highest[name] = max(highest.get(name, (0.0, 0, 0)), use)
        drafts = []
        own = case.event.text.partition(":")[0] if case.event.kind == KIND else ""
        for name, (share, used, maximum) in highest.items():
            if share < MIN_SHARES.get(name, MIN_SHARE) or (own in highest and name != own):
                continue  # an event that names its limit is not about another one
            text = f"{name}: {used} of {maximum} used ({100 * share:.0f} %)"
            subject = Subject(host=case.host, function=name)
            draft = _base.Draft(KIND, subject, window, 0.9 if share >= FULL_SHARE else 0.6, text)
            look = _base.command("events", window, case.host, "--kind", KIND)
            draft.support(text, "limits", look=look, used=used, maximum=maximum)
            draft.magnitude.update(used=used, maximum=maximum, used_share=share)
            drafts.append(draft)
        fullest = max((share for share, *_ in highest.values()), default=0.0)
        clear = f"the fullest of {len(highest)} kernel limits was {100 * fullest:.0f} % used"
        return self.answer(drafts, clear=clear)


DETECTORS = (KernelLimits(),)
