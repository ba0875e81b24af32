"""Stack samples: the perf_event_open system call, the perf binary, and perf.data files."""
