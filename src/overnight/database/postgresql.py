"""Connections to PostgreSQL whose every wait has a deadline: a server that is stopped answers nobody, and ends nothing."""

from __future__ import annotations

import time
from typing import Any

import psycopg

CONNECT_SECONDS, CALL_SECONDS = 5, 20.0


class Connection(psycopg.Connection[Any]):
    seconds: float | None = CALL_SECONDS  # of each call

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        seconds, began = self.seconds if timeout is None else timeout, time.monotonic()
        try:
            return super().wait(gen, interval, seconds)
        except psycopg.OperationalError:
            if seconds is not None and time.monotonic() - began >= seconds:
                self.pgconn.finish()  # a late answer would be taken for that of the next call
            raise


def connect(*arguments: Any, **options: Any) -> Connection:
    return Connection.connect(*arguments, **{"connect_timeout": CONNECT_SECONDS, **options})
