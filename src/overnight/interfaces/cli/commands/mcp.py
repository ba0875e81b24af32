"""`overnight mcp`."""

from __future__ import annotations

import pathlib

from overnight import errors
from overnight.interfaces.cli import pool_options, session

ORDER = 50


def mcp(
    current: session.Session,
    confirm_as: pathlib.Path | None = session.option(None, "File with the token of the person at this client, who confirms there.", "FILE"),
    database: pool_options.DatabaseOption = "",
) -> None:  # fmt: skip
    """Serve an assistant over standard input and output.

    Speaks the Model Context Protocol. With --server it asks that server with the assistant's token, else it works on the
    data home and pools of this machine. People confirm what is destructive or costly: overnight confirmations.
    """
    from overnight.app import concierge, server_settings

    backend: concierge.Backend
    server = pool_options.find_server(current, database)
    if server is not None:
        settings = server_settings.read_settings(server.url, current.token_file)
        person = server_settings.read_settings(server.url, confirm_as) if confirm_as else None
        backend = concierge.RemoteBackend(settings, person)
    elif confirm_as is not None:
        raise errors.UsageError(
            "--confirm-as needs --server",
            why="without a server, the person at this client is the user who started it",
            todo="leave it out, or add --server URL",
        )
    else:
        backend = concierge.LocalBackend(current.home, database)
    try:
        from overnight.interfaces.mcp import stdio
    except ImportError as error:
        raise errors.MissingToolError(
            "the Model Context Protocol cannot be spoken",
            why=f"a package is missing: {error}",
            todo="pip install 'overnight[mcp]'",
        ) from error
    stdio.serve(backend)


register = session.command(
    mcp, "Fleet", "mcp --server https://centre.example:8416", scope=session.Scope.SERVER
)
