"""JSON of `sadf -j -- -P ALL` and of `mpstat -P ALL -o JSON N`.

A sample::

{"sysstat": {"hosts": [{"nodename": "db-7", "statistics": [
  {"timestamp": {"date": "2026-11-16", "time": "18:02:02", "utc": 1, "interval": 1},
   "cpu-load": [{"cpu": "0", "user": 1.00, "nice": 0.00, "system": 8.00, "iowait": 0.00, "idle": 91.00}]}]}]}}
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

from overnight import errors
from overnight.ingest import logs
from overnight.ingest.logs import sysstat
from overnight.model.times import SECOND_US

NAME = "sadf"
NO_MINUTES = (
    "the times have no interval: it is taken from the reading before, and the first is left out"
)


def sniff(head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and b'"sysstat"' in head[:200]


def read(file: logs.LogFile) -> Iterator[logs.Reading]:
    try:
        hosts = json.loads(file.whole())["sysstat"]["hosts"]
        names = {str(host["nodename"]) for host in hosts}
        statistics = [(host, [*host.get("statistics", ())]) for host in hosts]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        why = "it is not complete JSON of sysstat; sadf writes it again from the saved file"
        raise errors.DamagedFileError(str(file.path), 0, why) from error
    if len(names) == 1:
        file.host = names.pop()[:255]
    for host, entries in statistics:
        last_us, clock = None, sysstat.Clock(file)
        if "date" in host:  # of mpstat; those of sadf have one each
            clock.begin(str(host["date"]))
        for entry in entries:
            try:
                stamp = entry["timestamp"]
                if isinstance(stamp, str):  # of mpstat: the time of day
                    file.note(NO_MINUTES)
                    end_us, begin_us = clock.parse(sysstat.CLOCK.match(f"{stamp} ")), last_us
                else:
                    end_us = _parse_end(file, host, stamp)
                    begin_us = end_us - int(stamp["interval"]) * SECOND_US
                cores = dict(_parse_cores(entry))
            except (ValueError, TypeError, KeyError, OverflowError):
                file.damaged += 1
                continue
            last_us = end_us
            if begin_us is not None and begin_us < end_us and cores:
                yield logs.Reading(begin_us, end_us, cores)


def _parse_end(file: logs.LogFile, host: dict[str, Any], stamp: dict[str, Any]) -> int:
    when = datetime.datetime.fromisoformat(f"{stamp['date']} {stamp['time']}")
    if stamp.get("utc"):
        return logs.parse_local(when, "UTC")
    zone = host.get("timezone")
    if file.zone is None and isinstance(zone, str):
        file.zone = zone
        file.note(f"the times are in {zone}, the zone of the host that ran sadf")
    return file.local(when)


def _parse_cores(entry: dict[str, Any]) -> Iterator[tuple[int, dict[str, float]]]:
    for row in entry["cpu-load"]:
        if str(row["cpu"]).isdecimal() and int(row["cpu"]) < sysstat.MAX_CORES:
            numbers = {name: float(value) for name, value in row.items() if name != "cpu"}
            yield int(row["cpu"]), sysstat.to_modes(numbers)
