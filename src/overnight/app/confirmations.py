"""Use cases of people who confirm what assistants ask for: `overnight confirmations` and `confirm`."""

from __future__ import annotations

import functools
import pathlib
from typing import TYPE_CHECKING

from overnight.model.confirmation import SCHEMA, Confirmation
from overnight.model.control_plane import Principal, Role

if TYPE_CHECKING:
    from overnight.fleet import confirmations

LOCAL = "local"  # id of whoever uses the database directly


class Confirmations:
    """The requests of a data home, or of the database at `url`, as `by` may decide them; opened on first use.

    `operations` lists the methods that a server publishes, and that `remote_operations` has from it.
    """

    def __init__(
        self,
        home: pathlib.Path,
        url: str = "",
        by: Principal | None = None,
        rows: confirmations.Confirmations | None = None,
    ) -> None:
        self.home = home
        self._url = url
        self._by = by
        self._open = rows

    @functools.cached_property
    def rows(self) -> confirmations.Confirmations:
        from overnight.app import pools, tokens
        from overnight.fleet import confirmations

        if self._open is not None:
            return self._open
        return confirmations.Confirmations(tokens.open_context(pools.Pools(self.home, self._url)))

    @functools.cached_property
    def by(self) -> Principal:
        from overnight.app import tokens

        return self._by or Principal(LOCAL, tokens.local_user(), Role.ADMIN)

    def list(self) -> tuple[Confirmation, ...]:
        """List what assistants ask for; with the codes of those that the caller may confirm."""
        return self.rows.list(self.by)

    def show(self, confirmation_id: str) -> Confirmation:
        """Show a request of an assistant, without its code."""
        return self.rows.show(confirmation_id, self.by)

    def confirm(self, code: str) -> Confirmation:
        """Let an assistant make the call once, within five minutes; refused for the assistant itself."""
        return self.rows.confirm(code, self.by)

    def decline(self, code: str) -> Confirmation:
        """Refuse what an assistant asks for."""
        return self.rows.decline(code, self.by)


def document(*shown: Confirmation) -> dict[str, object]:
    """Return the document; docs/schemas/confirmations-1.json describes it."""
    listed = [{**each.as_json(), "code": each.code} for each in shown]
    return {"schema": SCHEMA, "confirmations": listed}
