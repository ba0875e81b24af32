"""`overnight flame`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from overnight import errors
from overnight.interfaces.cli import files, formats, pages, profile_options, session

if TYPE_CHECKING:
    from overnight.queries import flame as query

__all__ = ["ORDER", "register"]

ORDER = 41
SHOWN_SHARE = 0.01


Format = formats.Format


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        rich_help_panel="In the morning",
        epilog="Example: overnight flame -b 2026-11-15T03:14:02 -e +5s --core 39 -O svg -o hot.svg",
    )(flame)


@profile_options.asks()
def flame(
    context: typer.Context,
    asked: profile_options.Asked,
    reverse: Annotated[
        bool,
        typer.Option("--reverse", help="Merge from the leaves: under each function its callers."),
    ] = False,
    mark: pages.MarkOption = None,
    output: Annotated[
        Format, formats.option("a flame graph", "is made of stacks", *Format)
    ] = Format.TEXT,
    file: files.FileOption = None,
) -> int:
    """The stacks of a window as a flame graph, in the terminal or as a file."""
    from overnight.queries import flame as query

    current: session.Session = context.obj
    chosen = profile_options.choose(current, asked)
    if output is Format.HTML:
        pages.deliver_page(chosen, pages.parse_marks(chosen, mark), file, callers=reverse)
        return errors.ExitCode.DONE
    tree = query.flame(
        chosen.reader, chosen.window, chosen.selection, hosts=chosen.hosts, reverse=reverse
    )
    if output is Format.TEXT:
        files.check_text(file)
        _show(tree, current)
    else:
        files.deliver(_writer(output, tree, chosen), file, binary=output is Format.PPROF)
    return errors.ExitCode.DONE


def _writer(output: Format, tree: query.FlameTree, chosen: profile_options.Chosen) -> pages.Write:
    import importlib

    module = importlib.import_module(f"overnight.reports.{output}")
    folded = pages.folded(tree, chosen)

    def write(out: BinaryIO) -> None:
        module.write(folded, out)

    return write


def _show(tree: query.FlameTree, current: session.Session) -> None:
    """An indented tree of what holds at least one percent, narrowest lines left out."""
    import rich.text

    from overnight.interfaces.cli import terminal

    console = current.console()
    total = max(1, tree.coverage.samples)
    depth = [0] * len(tree.frame)
    hidden = 0
    for i, (parent, number) in enumerate(
        zip(tree.parent.tolist(), tree.frame.tolist(), strict=True)
    ):
        depth[i] = depth[parent] + 1 if parent >= 0 else 0
        share = int(tree.whole[i]) / total
        if share < SHOWN_SHARE:
            hidden += 1
            continue
        line = rich.text.Text(f"{terminal.percent(share):>7}  " + "  " * min(depth[i], 40))
        style = {2: "bold", 1: "red"}.get(tree.kinds[number], "")
        name = tree.names[number]
        line.append(
            session.printable(name if name != "[unknown]" else f"[unknown] {tree.modules[number]}"),
            style,
        )
        console.print(line, no_wrap=True, overflow="ellipsis")
    if hidden:
        console.print(
            f"[dim]{hidden} narrower than {terminal.percent(SHOWN_SHARE)} are left out; -O html or svg shows all[/]"
        )
    console.print("[dim]shares are of the samples; kernel functions are red[/]")
    for line_ in terminal.coverage_lines(tree.coverage):
        console.print(rich.text.Text(session.printable(line_), "dim"))
