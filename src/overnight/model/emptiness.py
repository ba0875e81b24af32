"""Why an answer is empty: one reason and its facts, the same in text and JSON."""

from __future__ import annotations

import dataclasses
import enum


class Reason(enum.StrEnum):
    NOT_RECORDED = "not-recorded"
    DAMAGED = "damaged"
    NO_CORE = "no-core"
    NO_PERF_EVENT = "no-perf-event"
    NO_MATCH = "no-match"  # of one filter
    NO_COMBINATION = "no-combination"  # each filter matches, no sample matches all
    IDLE = "idle"
    NONE = "none"  # recorded, and nothing of the kind happened


TEXTS = {
    Reason.NOT_RECORDED: "nothing was recorded in this window",
    Reason.DAMAGED: "every segment of this window is damaged (`overnight store check`)",
    Reason.NO_CORE: "core {wanted} does not exist",
    Reason.NO_PERF_EVENT: "there is no perf event {wanted}",
    Reason.NO_MATCH: "no {what} matches {wanted}",
    Reason.NO_COMBINATION: "every filter matches something, but nothing matches all of {wanted}",
    Reason.IDLE: "the cores were idle in this window",
    Reason.NONE: "no {what} in this window",
}


@dataclasses.dataclass(frozen=True)
class Empty:
    """`known` is what there is instead, the most frequent first."""

    reason: Reason
    what: str = ""  # the filter that matches nothing, or what is missing
    wanted: str = ""  # its value
    known: tuple[str, ...] = ()
    known_as: str = ""  # what `known` lists: "recorded cores", "most samples"

    def __str__(self) -> str:
        text = TEXTS[self.reason].format(what=self.what, wanted=self.wanted)
        return f"{text}; {self.known_as}: {', '.join(self.known)}" if self.known else text
