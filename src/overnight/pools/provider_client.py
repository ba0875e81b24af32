"""Calls to a provider: outside any transaction, with a timeout, and with checked answers.

A call that times out is left running: whatever it creates is found by the sweep, by its tag.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from overnight import errors, pools
from overnight.model.pool import Pool, Reason
from overnight.pools import pool_errors

if TYPE_CHECKING:
    from overnight.database import engine

T = TypeVar("T")


class ProviderClient:
    """One provider, called with a timeout."""

    def __init__(
        self,
        provider: pools.Provider,
        steps: engine.Steps,
        regions: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`regions` returns every region that a pool of this provider has ever named."""
        self.provider = provider
        self._steps = steps
        self._regions = regions

    def check_used(self, pool: Pool, before: Pool | None = None) -> None:
        """Raise for a value that the provider would ignore; one that the pool had before may stay."""
        for name, only in self.provider.fixed.items():
            value = getattr(pool, name)
            if value != only and (before is None or value != getattr(before, name)):
                raise pool_errors.IgnoredOptionError(self.provider.name, name, value, only)

    def launch(self, order: pools.Order, timeout: float) -> pools.Machine:
        """Launch the member's machine, or raise ProviderError."""
        machine: object = self._call("launch", lambda: self.provider.launch(order), timeout)
        if (
            isinstance(machine, pools.Machine)
            and machine.id
            and machine.member_id == order.member_id
        ):
            return machine
        raise pools.ProviderError(
            Reason.INVALID_ANSWER, f"launch of {order.member_id} returned {machine!r}"
        )

    def terminate(self, machine_id: str, timeout: float) -> None:
        """Terminate a machine, or raise ProviderError."""
        self._call("terminate", lambda: self.provider.terminate(machine_id), timeout)

    def inventory(self, owner: str, timeout: float) -> Sequence[pools.Machine]:
        """List the owner's machines, or raise ProviderError: a failed call never returns an empty list."""
        answer: object = self._call("inventory", lambda: self._inventory(owner), timeout)
        if isinstance(answer, Sequence):
            machines = [m for m in answer if isinstance(m, pools.Machine) and m.id]
            if len(machines) == len(answer):
                return machines
        raise pools.ProviderError(Reason.INVALID_ANSWER, f"inventory returned {answer!r}")

    def _inventory(self, owner: str) -> Sequence[pools.Machine]:
        if isinstance(self.provider, pools.Cloud):
            return self.provider.inventory(owner, self._regions())
        return self.provider.inventory(owner)

    def why_gone(self, machine_id: str, timeout: float) -> Reason:
        """Return why a machine is missing, as far as the provider knows."""
        if not isinstance(self.provider, pools.Cloud):
            return Reason.MACHINE_GONE
        ask = self.provider.why_gone
        try:
            reason = self._call("why_gone", lambda: ask(machine_id), timeout)
        except pools.ProviderError:
            return Reason.MACHINE_GONE
        return reason or Reason.MACHINE_GONE

    def console(self, machine_id: str, timeout: float) -> str | None:
        """Return the console of a machine, None if the provider has none; or raise ProviderError."""
        text: object = self._call("console", lambda: self.provider.console(machine_id), timeout)
        if text is None or isinstance(text, str):
            return text and text.replace("\0", "\N{REPLACEMENT CHARACTER}")  # PostgreSQL has no NUL
        raise pools.ProviderError(Reason.INVALID_ANSWER, f"console returned {type(text).__name__}")

    def _call(self, name: str, call: Callable[[], T], timeout: float) -> T:
        self._steps(f"provider {name}: before")
        answers: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                answers.put((call(), None))
            except Exception as error:
                answers.put((None, error))

        # A daemon thread, for which the interpreter does not wait at exit: it may hang.
        threading.Thread(target=work, name=f"{self.provider.name} {name}", daemon=True).start()
        try:
            answer, error = answers.get(timeout=timeout)
        except queue.Empty:
            raise pools.ProviderError(
                Reason.TIMEOUT, f"{self.provider.name} did not answer {name} within {timeout:.0f} s"
            ) from None
        self._steps(f"provider {name}: after")
        if isinstance(error, pools.ProviderError):
            raise error
        if error is not None:
            message = error.what if isinstance(error, errors.OvernightError) else repr(error)
            raise pools.ProviderError(Reason.ERROR, f"{name}: {message}") from error
        return answer  # type: ignore[return-value]  # present, since there is no error
