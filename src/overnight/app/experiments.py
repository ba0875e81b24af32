"""The experiment of a verdict: which change tests its root, and what the events before and after it show."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight.agent import task_config
from overnight.diagnosis import knowledge, remedies
from overnight.investigations import context
from overnight.model import host_changes
from overnight.model.investigation import Answer
from overnight.model.text import host_time, plural, rounded
from overnight.queries import rates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from overnight.model.investigation import ArmRun
    from overnight.model.verdict import Verdict

# Changes that a host's configuration lists, by name.
Offered = Mapping[str, task_config.Command | task_config.BuiltinChange]


def choose(
    verdict: Verdict,
    allowed: Collection[str],
    offered: Offered | None,
) -> context.Proposal:
    """Return the change that tests the verdict's root, if the plan allows it and the host offers it.

    `offered` None: not known here. Changes then have the names of their builtins, and the host may refuse them.
    """
    known = knowledge.known()
    chain = verdict.blamed
    if chain is None:
        return context.Proposal("the verdict blames nothing that a change could test")
    root = known.name(chain.root.kind)
    possible = remedies.changes(chain, known)
    if not possible:
        return context.Proposal(
            f"no built-in change tests {root}, or the name of its target is not known"
        )
    missing: list[str] = []
    for changes in possible:
        steps, obstacles = [], []
        for change in changes:
            name = _find_name(change, offered)
            if change.builtin not in allowed:
                obstacles.append(f"the plan does not allow {change.builtin}")
            elif not name:
                obstacles.append(f"agent.toml of the host lists no {change}")
            else:
                steps.append(f"{name} {change.target}".rstrip())
        if not obstacles:
            return context.Proposal(f"it tests this cause: {root}", _join(changes), tuple(steps))
        missing += obstacles
    why = "; ".join(dict.fromkeys(missing))
    return context.Proposal(f"{_join(possible[0])} would test {root}, but {why}")


def _join(changes: Iterable[host_changes.Change]) -> str:
    return host_changes.THEN.join(map(str, changes))


def _find_name(change: host_changes.Change, offered: Offered | None) -> str:
    """Return the name of a change in the host's configuration; '' if it does not list the change."""
    if offered is None:
        return change.builtin
    for name, listed in offered.items():
        if isinstance(listed, task_config.BuiltinChange) and listed.builtin is change.builtin:
            with contextlib.suppress(ValueError):
                listed.check(change.target)
                return name
    return ""


def judge(before: ArmRun, after: ArmRun, kinds: Collection[str] = ()) -> context.Judgement:
    """Compare the events of an arm before and after the change; `kinds` are those that count, none: all."""
    spans = [_read_spans(arm, kinds) for arm in (before, after)]
    hosts = sorted({host for side in spans for host in side})
    rows = [[side.get(host, (0.0, ())) for side in spans] for host in hosts]
    events = [[len(found) for _, found in row] for row in rows]
    hours = [[seconds / 3600 for seconds, _ in row] for row in rows]
    if not all(sum(row[side] for row in hours) > 0 for side in (0, 1)):
        side = "after" if any(row[0] for row in hours) else "before"
        return context.Judgement(Answer.UNDECIDED, f"nothing was observed {side} the change")
    dispersion = rates.measure_dispersion([tuple(side.values()) for side in spans])
    return judge_rates(rates.compare(events, hours, dispersion=dispersion))


def _read_spans(arm: ArmRun, kinds: Collection[str]) -> dict[str, rates.Span]:
    """Return the observed time of each host, and its events."""
    seconds = max(0, arm.ended_us - arm.began_us) / 1e6
    if not seconds:
        return {}
    counted = [
        each
        for each in arm.occurrences
        if (not kinds or each.kind in kinds) and arm.began_us <= each.time_us <= arm.ended_us
    ]
    return {
        host: (seconds, [(each.time_us - arm.began_us) / 1e6 for each in counted if each.host == host])
        for host in arm.hosts
    }  # fmt: skip


def judge_rates(compared: rates.Comparison) -> context.Judgement:
    """Confirmed: the rate fell, by half at least. Refuted: the interval has no room for a fall by half."""
    ratio, low, high = compared.ratio, compared.ratio_low, compared.ratio_high
    facts = f"{_describe(compared.before)} before the change, {_describe(compared.after)} after it"
    if ratio is None or high is None:
        why = "there was no event before it to compare with"
        return context.Judgement(Answer.UNDECIDED, f"{facts}; {why}")
    sure = f"{100 * compared.confidence:.3g} %"
    facts += f"; ratio of the rates {rounded(ratio)}, {sure} interval {rounded(low)} to {rounded(high)}"  # fmt: skip
    if high < 1 and ratio <= rates.HALF:
        return context.Judgement(Answer.CONFIRMED, f"the event became rarer: {facts}")
    if low > rates.HALF and high >= 1:
        return context.Judgement(Answer.REFUTED, f"the event did not become rarer by half: {facts}")  # fmt: skip
    if low > rates.HALF:
        why = "it became rarer, but by less than half, so this is at most a part of the cause"
        return context.Judgement(Answer.UNDECIDED, f"{why}: {facts}")
    # Ratio and bounds are inversely proportional to the time after, as long as no event adds to it.
    needed = compared.after.exposure * max(high - 1, ratio / rates.HALF - 1)
    return context.Judgement(
        Answer.UNDECIDED,
        f"{facts}; {host_time(needed)} more without an event would confirm it",
        needed,
    )


def _describe(rate: rates.Rate) -> str:
    return f"{plural(rate.events, 'event')} in {host_time(rate.exposure)}"
