"""The console of every command. Names and texts of a host may hold control sequences: it shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rich.console
import rich.segment
import rich.text

from overnight.interfaces.cli import suggestions
from overnight.model.text import printable


class Console(rich.console.Console):
    """Escapes what a terminal would interpret; colours and cursor movements of Rich itself pass."""

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        # Before the layout, so that columns have the width of what is shown.
        return super().render_str(printable(suggestions.complete(text), keep="\n\t"), **options)

    def print(self, *objects: Any, crop: bool = False, **options: Any) -> None:
        # What is wider than the terminal is a command, which must not be cut or broken.
        super().print(*objects, crop=crop, **options)

    def render(
        self,
        renderable: rich.console.RenderableType,
        options: rich.console.ConsoleOptions | None = None,
    ) -> Iterable[rich.segment.Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=printable(segment.text, keep="\n"))
