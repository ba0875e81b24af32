"""Calls to a provider: outside any transaction, with a limit in time, and its answers checked.

A call that takes too long is left to itself: what it makes is found by the sweep, by its tag.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from overnight import errors, pools

if TYPE_CHECKING:
    from overnight.pools import database

__all__ = ["ProviderClient"]

T = TypeVar("T")


class ProviderClient:
    """One provider, called with care."""

    def __init__(
        self,
        provider: pools.Provider,
        steps: database.Steps,
        regions: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.provider = provider
        self._steps = steps
        self._regions = regions  # that pools have ever named

    @property
    def name(self) -> str:
        """The provider's."""
        return self.provider.name

    def check(self, order: pools.Order) -> None:
        """Raises for an order that could never be carried out; a provider may know none such."""
        if isinstance(self.provider, pools.Checks):
            self.provider.check(order)

    def launch(self, order: pools.Order, timeout: float) -> pools.Machine:
        """A machine for the member, or ProviderError."""
        made: object = self._call("launch", lambda: self.provider.launch(order), timeout)
        if isinstance(made, pools.Machine) and made.id and made.member_id == order.member_id:
            return made
        raise pools.ProviderError("provider_lied", f"it answered {made!r} for {order.member_id}")

    def terminate(self, machine_id: str, timeout: float) -> None:
        """The provider has taken the order, or ProviderError."""
        self._call("terminate", lambda: self.provider.terminate(machine_id), timeout)

    def inventory(self, owner: str, timeout: float) -> Sequence[pools.Machine]:
        """Every machine of the owner, or ProviderError: never an empty answer for a failed one."""
        found: object = self._call("inventory", lambda: self._inventory(owner), timeout)
        if isinstance(found, Sequence):
            listed = [one for one in found if isinstance(one, pools.Machine) and one.id]
            if len(listed) == len(found):
                return listed
        raise pools.ProviderError("provider_lied", f"it listed {found!r}")

    def _inventory(self, owner: str) -> Sequence[pools.Machine]:
        if isinstance(self.provider, pools.Cloud):
            return self.provider.inventory(owner, self._regions())
        return self.provider.inventory(owner)

    def why_gone(self, machine_id: str, timeout: float) -> str:
        """Why a machine is missing, in one word."""
        plain = "machine_gone"
        if not isinstance(self.provider, pools.Cloud):
            return plain
        ask = self.provider.why_gone
        try:
            return self._call("why_gone", lambda: ask(machine_id), timeout) or plain
        except pools.ProviderError:
            return plain  # it is gone all the same

    def _call(self, name: str, call: Callable[[], T], timeout: float) -> T:
        self._steps(f"provider {name}: before")
        answers: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                answers.put((call(), None))
            except Exception as error:
                answers.put((None, error))

        # A thread of its own, and none that the interpreter waits for at its end: it may hang.
        threading.Thread(target=work, name=f"{self.name} {name}", daemon=True).start()
        try:
            answer, error = answers.get(timeout=timeout)
        except queue.Empty:
            raise pools.ProviderError(
                "provider_timeout", f"{self.name} did not answer {name} within {timeout:.0f} s"
            ) from None
        self._steps(f"provider {name}: after")
        if isinstance(error, pools.ProviderError):
            raise error
        if error is not None:
            told = error.what if isinstance(error, errors.OvernightError) else repr(error)
            raise pools.ProviderError("provider_error", f"{name}: {told}") from error
        return answer  # type: ignore[return-value]  # it is there where no error is
