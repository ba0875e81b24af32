"""What the arms of an investigation say about a kind of event: arguments for and against causes, never a cause.

Only a decided comparison is a finding. Its number is 1 where the rate neither halved nor doubled, so that an arm
without effect contradicts the cause that it removes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from overnight.detectors import _base
from overnight.model.finding import Answer, Subject
from overnight.model.host_changes import THEN, Builtin
from overnight.model.text import fraction, plural, rounded
from overnight.queries import contrast, rates

if TYPE_CHECKING:
    from overnight.model.selection import Window

CONTRAST, DOSE = "arm.contrast", "arm.dose"
DECIDED = (rates.Outcome.ROSE, rates.Outcome.FELL, rates.Outcome.UNCHANGED)
# Changes that remove accumulated state, and those that name the unit they change.
PURGES, OF_UNITS = {Builtin.PURGE, Builtin.REBOOT}, {Builtin.MASK_UNIT, Builtin.CAP_CPU}
DOSES = {"zombies": "dying memory cgroups", "uptime_s": "uptime", "load": "busy share of the cores"}


@dataclasses.dataclass(frozen=True)
class Treatment:
    """What makes an arm: state of `overnight age` (none: the host's own), and changes such as `mask-unit a.service`.

    A change whose name is not built in argues nothing: what it changes is not known here.
    """

    states: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # several in one text are joined by ` then `

    @property
    def words(self) -> list[list[str]]:
        every = (part.split() for change in self.changes for part in change.split(THEN))
        return [words for words in every if words]

    @property
    def unit(self) -> str:
        """The only unit that the arm changes, purged or not; with other changes it is not known what helped."""
        others = [words for words in self.words if words[0] not in PURGES]
        if len(others) == 1 and len(others[0]) > 1 and others[0][0] in OF_UNITS:
            return others[0][1]
        return ""


class Arms(_base.Detector):
    """All decided comparisons of one kind of event."""

    name = "fleet.arms"

    def ask(
        self,
        compared: contrast.Contrast,
        treatments: Mapping[str, Treatment],
        window: Window,
        kind: str,
    ) -> Answer:
        pairs = [pair for pair in compared.pairs if _covers(pair.kind, kind)]
        trends = [trend for trend in compared.trends if _covers(trend.kind, kind)]
        if not pairs and not trends:
            return self.no_data("no two arms were observed")
        drafts = [
            _draft_pair(pair, compared.unit, treatments.get(pair.arm, Treatment()), window)
            for pair in pairs
            if pair.compared.outcome in DECIDED and not pair.is_confounded
        ]
        drafts += [_draft_trend(trend, window) for trend in trends if trend.outcome in DECIDED]
        if not drafts:
            return self.no_data(
                f"cannot tell: too few {kind}, hosts or hours to tell the arms apart"
            )
        return self.answer(drafts, clear="")


def _covers(compared: str, kind: str) -> bool:
    """Return whether what was compared is this kind of event; one that ends with a dot is a prefix."""
    return compared == kind or (compared.endswith(".") and kind.startswith(compared))


def _draft_pair(
    pair: contrast.Pair, unit: str, treatment: Treatment, window: Window
) -> _base.Draft:
    both = pair.compared
    word = {rates.Outcome.ROSE: "more", rates.Outcome.FELL: "less"}.get(both.outcome, "no more and no less")  # fmt: skip
    counts = (
        f"{both.after.events} in {rounded(both.after.exposure)} {unit} against {both.before.events} in "
        f"{rounded(both.before.exposure)}, ratio {_format(both.ratio_low, both.ratio_high)}"
    )
    draft = _base.Draft(
        CONTRAST,
        # The arm keeps the ids of two comparisons apart.
        Subject(cohort=f"{pair.arm} arm", unit=treatment.unit),
        window,
        both.confidence,
        f"{pair.kind} is {word} frequent in the {pair.arm} arm than in the {pair.base} arm: {counts}",
        magnitude=dict.fromkeys(
            _numbers(pair, treatment), _measure(both.outcome, both.ratio, both.ratio_low)
        ),
    )
    draft.support(
        f"{pair.arm} against {pair.base}: {counts} (95 % interval)"
        + ("; each host is compared with itself" if pair.same_hosts else ""),
        "events",
        events=both.after.events,
        base_events=both.before.events,
        ratio=both.ratio,
        ratio_low=both.ratio_low,
        ratio_high=both.ratio_high,
        dispersion=both.dispersion,
    )
    return draft


def _measure(outcome: rates.Outcome, ratio: float | None, low: float) -> float:
    """Return the number of a finding: the ratio, or its lower bound where it has none."""
    if outcome is rates.Outcome.UNCHANGED:
        return 1.0
    return low if ratio is None else ratio


def _format(low: float, high: float | None) -> str:
    return f"{rounded(low)} to {'∞' if high is None else rounded(high)}"


def _numbers(pair: contrast.Pair, treatment: Treatment) -> Iterator[str]:
    """Yield the numbers that the rules of the knowledge read; which one depends on what makes the arm."""
    if pair.arm == "hot" and pair.base == "cold":
        yield from (f"aged_{state.replace('-', '_')}_by_cold" for state in treatment.states)
        if not treatment.states:
            yield "aged_by_cold"
    elif pair.base == "hot":
        names = {words[0] for words in treatment.words}
        if treatment.unit:
            yield "changed_by_hot"
        elif pair.arm == "purged" or (names and names <= PURGES):
            yield "purged_by_hot"


def _draft_trend(trend: contrast.Trend, window: Window) -> _base.Draft:
    name = DOSES.get(trend.dose, trend.dose)
    low = trend.low or 0.0
    bounds = _format(low, trend.high)
    how = {rates.Outcome.ROSE: "rises", rates.Outcome.FELL: "falls"}.get(trend.outcome, "does not change")  # fmt: skip
    draft = _base.Draft(
        DOSE,
        Subject(cohort=name),
        window,
        1 - rates.ALPHA,
        f"the rate of {trend.kind} {how} with the {name}: {bounds} times from the lowest to the highest of "
        f"{plural(len(trend.points), 'host')}",
        magnitude={
            f"{trend.dose.removesuffix('_s')}_ratio": _measure(trend.outcome, trend.ratio, low)
        },
    )
    draft.support(
        f"Poisson regression on the {name}: ratio {bounds}; with doses assigned at random p = "
        f"{fraction(trend.p or 1.0)}",
        "events",
        ratio_low=trend.low,
        ratio_high=trend.high,
        p=trend.p,
    )
    return draft
