"""Use case of `overnight node-events`: a process beside the recorder, which it does not touch.

It follows the recorder's events in the data home, which it only reads, and writes them as Events and conditions of
the Node. It has no state of its own: what it must know after a restart is on the Node and in the ring.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import platform
import random
import threading
import time
from collections.abc import Callable

from overnight import errors, kubernetes_api
from overnight.agent import outlets
from overnight.agent.outlets import kubernetes
from overnight.agent.uplink import event_tail
from overnight.app.node_events import similar_events, writer
from overnight.kubernetes_api import client as api
from overnight.model import clock, times, uplink
from overnight.store.ring import layout

RIGHTS = "kubectl apply -k deploy/kubernetes/node-events"
POLL_SECONDS = 1.0
MAX_DELAY_SECONDS = 60.0
SILENT_SECONDS = 120.0
BATCH = 1000

Log = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    home: pathlib.Path
    node: str
    context: str = ""  # of the kubeconfig; '': this pod's account
    host: str = ""  # of the recording; '': this one


def run(options: Options, stop: threading.Event, log: Log) -> None:
    """Write events and conditions until stopped; raise only for what cannot work at all."""
    client = api.connect(options.context)
    try:
        follower = Follower(options, writer.NodeWriter(client, options.node, time.monotonic), log)
        while not stop.is_set():
            follower.poll()
            stop.wait(POLL_SECONDS)
    finally:
        client.close()


class Follower:
    """Moves events from the ring to the writer; requests that fail are tried again, ever more rarely."""

    def __init__(self, options: Options, node_writer: writer.NodeWriter, log: Log) -> None:
        self._options = options
        self._writer = node_writer
        self._log = log
        self._host = options.host or platform.node() or "host"
        self._folder = layout.host_folder(options.home, self._host)
        self._tail = event_tail.EventTail(self._folder, {})
        self._outlet: kubernetes.Kubernetes | None = None
        self._failures = 0
        self._next = 0.0
        self._problem = ""
        self._silent = False
        self._written = 0.0

    def poll(self) -> None:
        """Do what is due; call it every second."""
        if self._outlet is not None:
            self._follow(self._outlet)
        if time.monotonic() < self._next:
            return
        try:
            if self._outlet is None:
                self._start()
            self._writer.flush()
        except kubernetes_api.KubernetesError as error:
            if self._outlet is None and error.code == 404:
                raise  # a wrong name
            self._failures += 1
            delay = min(MAX_DELAY_SECONDS, 2.0 ** min(self._failures, 10))
            self._next = time.monotonic() + delay * random.uniform(0.5, 1)  # noqa: S311  apart from other nodes
            self._report(error)
        else:
            if self._failures:
                self._log("the API server answers again")
            self._failures, self._problem = 0, ""

    def _start(self) -> None:
        self._writer.read()
        for type_ in sorted(self._writer.foreign):
            self._log(f"condition {type_} belongs to another program and is left alone")
        self._outlet = kubernetes.Kubernetes(self._writer, self._options.node)
        self._outlet.tick(self._status())
        self._follow(self._outlet)

    def _follow(self, outlet: kubernetes.Kubernetes) -> None:
        # What happened while this process did not run is written late; the server would delete older Events.
        since_us = times.now_us() - round(similar_events.KEEP_SECONDS * 1e6)
        while self._tail.has_new():
            events, places = self._tail.take(BATCH)
            if places == self._tail.places:
                break  # the rest of a line is still to come
            for document in events:
                try:
                    event = uplink.parse_event(document)
                except errors.UsageError:
                    continue  # not an event of this version
                if max(event.until_us, event.time_us) >= since_us:
                    outlet.event(event)
            self._tail.commit(places)
        if self._is_recording():
            outlet.tick(self._status())
            self._writer.confirm(round(self._written * 1e6))

    def _is_recording(self) -> bool:
        """Whether the recorder writes: without it, nothing seen does not mean that nothing is there."""
        with contextlib.suppress(OSError):  # sealed meanwhile, or not readable
            for _, path in layout.files(self._folder, layout.OPEN):
                self._written = max(self._written, path.stat().st_mtime)
        silent = time.time() - self._written > SILENT_SECONDS
        if silent and not self._silent:
            self._log(
                f"the recorder of {self._host} has written nothing to {self._options.home} for "
                f"{SILENT_SECONDS:.0f} s; conditions stay as they are"
            )
        elif self._silent and not silent:
            self._log(f"the recorder of {self._host} writes again")
            self._outlet = None  # its conditions are adopted anew, with their whole time to live
        self._silent = silent
        return not silent and self._outlet is not None

    def _status(self) -> outlets.HostStatus:
        # A lasting event is recorded again while it lasts, so none needs to be listed as open.
        return outlets.HostStatus(
            self._host, clock.Clock(time.time_ns(), time.monotonic_ns()),
            rows={}, facts={}, counts={}, rules={}, saturated={}, open=(), agent={},
        )  # fmt: skip

    def _report(self, error: kubernetes_api.KubernetesError) -> None:
        todo = RIGHTS if error.code == 403 else error.todo
        problem = f"{error.what}: {error.why}; trying again. Next: {todo}"
        if problem != self._problem:
            self._log(problem)
        self._problem = problem
