"""`overnight diagnose`: the verdict on an event, with what a report shows beside it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Literal

from overnight.app import bundles, event_diagnosis, report_material
from overnight.diagnosis import knowledge
from overnight.reports import diagnosis

if TYPE_CHECKING:
    import rich.console

    from overnight.model.finding import Answer
    from overnight.model.verdict import Verdict

LAST = "last"


@dataclasses.dataclass(frozen=True)
class Request:
    home: pathlib.Path
    bundle: pathlib.Path | None = None  # instead of the data home
    event_id: str = LAST  # `last`: the last serious event, or the one a bundle was made for
    host: str = ""
    knowledge: tuple[pathlib.Path, ...] = ()


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    verdict: Verdict
    material: diagnosis.Material

    def write(self, form: Literal["json", "markdown", "html"], out: BinaryIO) -> None:
        module = importlib.import_module(f"overnight.reports.diagnosis.{form}")
        module.write(self.verdict, out, self.material)

    def render(self) -> rich.console.Group:
        """Return the report for a terminal."""
        from overnight.reports.diagnosis import text

        return text.render(self.verdict, self.material)


def diagnose(request: Request, on_answer: Callable[[Answer], None] = lambda _: None) -> Diagnosis:
    """Diagnose one event; `on_answer` gets the answer of each detector as it comes."""
    known = knowledge.read_knowledge(request.knowledge)
    with _evidence(request) as (home, event_id):
        event = event_diagnosis.choose_event(home, event_id, request.host)
        verdict, case = event_diagnosis.diagnose(home, event, known=known, on_answer=on_answer)
        material = (
            report_material.gather(case, verdict, known) if case is not None else diagnosis.EMPTY
        )
    return Diagnosis(verdict, material)


@contextlib.contextmanager
def _evidence(request: Request) -> Iterator[tuple[pathlib.Path, str]]:
    """Yield the data home to read and the event to diagnose."""
    if request.bundle is None:
        yield request.home, request.event_id
        return
    with bundles.open_temporarily(request.bundle) as opened:
        assert opened.home is not None
        of_bundle = request.event_id == LAST and opened.header.event
        yield opened.home, of_bundle or request.event_id
