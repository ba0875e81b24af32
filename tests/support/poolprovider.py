"""A provider whose machines are names in a list; tests make it fail, hang, lie or be slow."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from overnight import pools

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Scripted(pools.Provider):
    """Machines live in `machines`; it outlives the control planes that use it, as a cloud does."""

    name = "scripted"
    prefix = "i"

    def __init__(self) -> None:
        self.machines: dict[str, pools.Machine] = {}
        self.owners: dict[str, str] = {}
        self.tokens: dict[str, str] = {}
        self.launched = 0
        self.calls: list[str] = []
        self.console_text: str | None = None
        self.lock = threading.Lock()
        # Each is called before the real work; it may raise, wait, or return an answer instead.
        self.on_launch: Callable[[pools.Order], object] = lambda _: None
        self.on_terminate: Callable[[str], object] = lambda _: None
        self.on_inventory: Callable[[], object] = lambda: None
        self.after_launch: Callable[[pools.Order], object] = lambda _: None

    def launch(self, order: pools.Order) -> pools.Machine:
        self.calls.append(f"launch {order.member_id}")
        if (instead := self.on_launch(order)) is not None:
            return instead  # type: ignore[return-value]  # a false answer
        with self.lock:
            for machine in self.machines.values():
                if machine.member_id == order.member_id:
                    return machine
            self.launched += 1
            name = f"{self.prefix}-{self.launched:04}"
            machine = pools.Machine(
                id=name, member_id=order.member_id, address=f"10.0.0.{self.launched % 250}"
            )
            self.machines[name] = machine
            self.owners[name] = order.owner
            self.tokens[order.member_id] = order.token
        self.after_launch(order)
        return machine

    def terminate(self, machine_id: str) -> None:
        self.calls.append(f"terminate {machine_id}")
        self.on_terminate(machine_id)
        with self.lock:
            self.machines.pop(machine_id, None)

    def inventory(self, owner: str) -> Sequence[pools.Machine]:
        if (instead := self.on_inventory()) is not None:
            return instead  # type: ignore[return-value]  # a false answer
        with self.lock:
            return [m for m in self.machines.values() if self.owners[m.id] == owner]

    def console(self, machine_id: str) -> str | None:
        return self.console_text if machine_id in self.machines else None

    def refuse(self, reason: str, *, nothing_made: bool = True) -> None:
        """Fail every launch from now on."""

        def say_no(order: pools.Order) -> None:
            raise pools.ProviderError(reason, "no", nothing_made=nothing_made)

        self.on_launch = say_no

    def obey(self) -> None:
        """Stop failing."""
        self.on_launch = lambda _: None
        self.on_terminate = lambda _: None
        self.on_inventory = lambda: None


class OnHost(Scripted):
    """A provider whose machines only one host can reach."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self.prefix = host

    def host(self, *, create: bool = False) -> str | None:
        return self.prefix
