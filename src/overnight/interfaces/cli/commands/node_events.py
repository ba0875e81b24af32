"""`overnight node-events`."""

from __future__ import annotations

from overnight import errors
from overnight.interfaces.cli import session, terminal
from overnight.model import stop_signals

ORDER = 23


def node_events(
    current: session.Session,
    node: str = session.option("", "Node of this host; also NODE_NAME.", "NAME", envvar="NODE_NAME"),
    where: str = session.option(
        "", "Context of the kubeconfig. Default: KUBECONFIG, else the account of this pod.", "NAME",
        "--context",
    ),
    host: str = session.option("", "Host of the recording. Default: this host.", "NAME"),
) -> int:  # fmt: skip
    """Report events to Kubernetes, as Events and node conditions.

    Runs beside the recorder until stopped, and only reads the data home. Needs the rights of
    deploy/kubernetes/node-events. While the API server does not answer, it keeps the conditions and tries again.
    """
    from overnight.app import node_events as use_case

    if not node:
        raise errors.UsageError(
            "no node was given",
            why="Events and conditions belong to a Node",
            todo="add --node NAME, or set NODE_NAME",
        )

    def log(line: str) -> None:
        terminal.echo(line, err=True)

    options = use_case.Options(home=current.home, node=node, context=where, host=host)
    with stop_signals.stop_on_signals() as stop:
        use_case.run(options, stop, log)
    return errors.ExitCode.DONE


register = session.command(node_events, "During the night", "node-events --node ip-10-0-0-7")
