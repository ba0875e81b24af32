"""Questions about many hosts: one definition each, answered from a data home or by a server.

A question takes a fleet and a request of texts, and gives a result. A server publishes the document of the
result, and its client decodes it to the same result, so that the same view shows it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from overnight import errors
from overnight.model import decoding
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.model.fleet import Fleet, Host

Asked = TypeVar("Asked")
Found = TypeVar("Found")


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a question needs of a fleet: kinds of events (None: all), and whether snapshots."""

    kinds: Collection[str] | None = None
    snapshots: bool = False


ReadFleet = Callable[[Wanted], "Fleet"]


@dataclasses.dataclass(frozen=True)
class Question(Generic[Asked, Found]):
    """The fields of `request` are texts or tuples of texts; results have `as_json`, the inverse of `from_json`."""

    name: str
    request: type[Asked]
    needs: Callable[[Asked], Wanted]
    answer: Callable[[Fleet, Asked], Found]
    from_json: Callable[[dict[str, Any]], Found]

    @property
    def schema(self) -> str:
        return f"overnight.{self.name}/1"

    def parse(self, parameters: Mapping[str, Sequence[str]]) -> Asked:
        """Return the request of query parameters; raise UsageError for unknown and repeated ones."""
        hints = typing.get_type_hints(self.request)
        values: dict[str, object] = {}
        for name, texts in parameters.items():
            if name not in hints:
                raise errors.UsageError(
                    f"the question {self.name} has no parameter {name!r}",
                    why=f"its parameters are {', '.join(hints)}",
                    todo="use the same version for client and server",
                )
            if hints[name] is str and len(texts) != 1:
                raise errors.UsageError(
                    f"{name} is given {len(texts)} times",
                    why=f"the question {self.name} takes one",
                    todo=f"give one {name}",
                )
            values[name] = texts[0] if hints[name] is str else tuple(texts)
        return self.request(**values)

    def parameters(self, request: Asked) -> list[tuple[str, str]]:
        """Return a request as query parameters; what is empty is left out."""
        pairs = []
        for field in dataclasses.fields(request):  # type: ignore[arg-type]  # a dataclass
            value = getattr(request, field.name)
            texts = (value,) if isinstance(value, str) else value
            pairs += [(field.name, text) for text in texts if text]
        return pairs

    def decode(self, document: Mapping[str, Any]) -> Found:
        """Return the result of a document; raise ShapeError for one of another form."""
        if document.get("schema") != self.schema:
            raise decoding.ShapeError("schema", self.schema)
        try:
            return self.from_json(dict(document))
        except (KeyError, TypeError, AttributeError) as error:
            why = f"of the form {self.schema} ({error})"
            raise decoding.ShapeError("the document", why) from error

    def ask_home(self, home: pathlib.Path, request: Asked) -> Found:
        """Answer from the hosts of a data home."""
        from overnight.queries import fleet

        wanted = self.needs(request)
        read = fleet.read_fleet(home, wanted.kinds, snapshots=wanted.snapshots)
        return self.answer(read, request)


def choose_hosts(fleet: Fleet, names: Sequence[str] = ()) -> tuple[Host, ...]:
    """Return these hosts, or all; raise CannotError where there are none, or not these."""
    known = [host.name for host in fleet.hosts]
    if not known:
        raise errors.CannotError(
            "no hosts are recorded",
            why="; ".join(fleet.problems)
            or "no agent has reported, and no recorder has run with this data home",
            todo="run `overnight record --for 12h` here; or `overnight agent --server URL` on each host, and ask with --server URL",
        )
    for name in names:
        if name not in known:
            raise errors.CannotError(
                f"no host {name!r} is recorded",
                why=f"recorded hosts: {', '.join(known[:20])}" + " …" * (len(known) > 20),
                todo="choose one of these; `overnight hosts` lists all",
            )
    return tuple(host for host in fleet.hosts if not names or host.name in names)


def extent(hosts: Sequence[Host]) -> Window | None:
    """Return the time from the first reading or event to the last."""
    stamps = [event.time_us for host in hosts for event in host.events]
    stamps += [at for host in hosts for spell in host.spells for at in (spell.begin_us, spell.end_us)]  # fmt: skip
    return Window(min(stamps), max(stamps) + 1) if stamps else None
