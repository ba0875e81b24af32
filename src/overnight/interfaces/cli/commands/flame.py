from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.interfaces.cli import files, formats, profile_options, session, terminal
from overnight.model import colours
from overnight.model.flame import FrameKind
from overnight.model.text import percent, plural, printable

if TYPE_CHECKING:
    from overnight.app import flame as graphs

ORDER = 41
SHOWN_SHARE = 0.01

Format = formats.Format


@profile_options.takes_query()
def flame(
    current: session.Session,
    query: profile_options.Query,
    reverse: bool = session.flag("Callers below each function, from the leaves up."),
    mark: profile_options.MarkOption = None,
    output: Format = formats.option("a flame graph", "is made of stacks", *Format),
    file: files.FileOption = None,
) -> None:
    """Show the stacks of a window as a flame graph."""
    from overnight.app import flame as graphs

    home, chosen = profile_options.find_samples(current, query)
    request = graphs.Request(home, chosen, tuple(mark or ()), reverse)
    if output is Format.HTML:
        files.deliver(graphs.make_page(request), file)
        return
    graph = graphs.draw_flame_graph(request)
    if output is Format.TEXT:
        files.check_text(file)
        _show(graph, current)
    else:
        files.deliver(graph.writer(output), file, binary=output is Format.PPROF)
        # Not every format has room for notes.
        empty = graph.coverage.empty
        for remark in (*graph.coverage.damaged, *([empty] if empty else [])):
            terminal.print_line(current.notes(), str(remark))


def _show(graph: graphs.FlameGraph, current: session.Session) -> None:
    """Print an indented tree of the nodes with at least one percent of the samples."""
    import rich.text

    console = current.console()
    hidden = 0
    for node in graph.nodes():
        if node.share < SHOWN_SHARE:
            hidden += 1
            continue
        line = rich.text.Text(f"{percent(node.share):>7}  " + "  " * min(node.depth, 40))
        line.append(printable(node.name), colours.TERMINAL[node.kind])
        console.print(line, no_wrap=True, overflow="ellipsis")
    if hidden:
        console.print(
            f"[dim]{plural(hidden, 'node')} below {percent(SHOWN_SHARE)} not shown; "
            "-O html and -O svg show all[/]"
        )
    if graph.coverage.samples:
        user, kernel = (colours.TERMINAL[kind] for kind in (FrameKind.USER, FrameKind.KERNEL))
        console.print(f"[dim]percent of samples;[/] [{user}]user[/], [{kernel}]kernel[/]")
    terminal.print_window(graph.coverage, console)
    terminal.print_coverage(graph.coverage, console)


register = session.command(
    flame,
    "In the morning",
    "flame -b 2026-11-15T03:14:02 -e +5s --core 39 -O svg -o hot.svg",
    scope=session.Scope.SERVER,
)
