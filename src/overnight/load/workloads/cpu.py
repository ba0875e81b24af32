"""A constant share of each core: a duty cycle under closed-loop control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight import load
from overnight.load import controller

if TYPE_CHECKING:
    from overnight.load import worker
    from overnight.undo import journal

DUTY = 0.6
SPIN = range(2000)  # about 50 µs: far less than a period


class Cpu:
    name = "cpu"
    about = "a constant share of each core, held by a controller on CPU time"
    takes = ("duty",)

    def metrics(self, options: load.Options) -> tuple[load.Metric, ...]:
        target = (options.duty or DUTY) * len(options.cores)
        return (load.Metric("cpu", "cores", "cpu", target=target),)

    def prepare(self, options: load.Options, journal: journal.Journal) -> tuple[load.Job, ...]:  # noqa: ARG002 - changes nothing
        duty = controller.check_duty(DUTY if options.duty is None else options.duty)
        name = options.name or "load-cpu"
        parts = len(options.cores)
        return tuple(
            load.Job(f"{name}-{core}", (core,), {"duty": duty, "phase": n / parts})
            for n, core in enumerate(options.cores)
        )

    def work(self, link: worker.Link) -> None:
        pacer = controller.Pacer(link.settings["duty"], phase=link.settings["phase"])
        link.ready()
        while True:
            for _ in SPIN:
                pass
            pacer.rest()


WORKLOAD = Cpu()
