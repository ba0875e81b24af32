from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from overnight.model import programs
from overnight.model.programs import Kind

PYTHON, BASH, JAVA = "/usr/bin/python3.11", "/bin/bash", "/opt/jdk/bin/java"
CASES = [
    # comm, executable, arguments, name, kind
    ("python3", PYTHON, "python3 /opt/collect.py --all", "collect.py (python3)", Kind.SCRIPT),
    ("python3", PYTHON, "python3 -u -X dev -W ignore train.py", "train.py (python3)", Kind.SCRIPT),
    ("python", PYTHON, "python -m torch.distributed.run t.py", "torch.distributed.run (python3)", Kind.SCRIPT),
    ("python3", PYTHON, "python3 -m", "python3", Kind.INTERPRETER),
    ("python3", PYTHON, "python3 -c import\\ time", "python3", Kind.INTERPRETER),
    ("python3", PYTHON, "python3", "python3", Kind.INTERPRETER),
    # Started by its first line, #!/usr/bin/env python3: the kernel cuts the script's name.
    ("collect_metrics", PYTHON, "python3 /opt/collect_metrics_of_all.py", "collect_metrics_of_all.py (python3)", Kind.SCRIPT),
    # Names that a program gave itself.
    ("ray::IDLE", PYTHON, "ray::IDLE", "ray::IDLE", Kind.BINARY),
    ("gunicorn: maste", PYTHON, "python3 /usr/bin/gunicorn app", "gunicorn: maste", Kind.BINARY),
    ("python3", f"{PYTHON} (deleted)", "python3 old.py", "old.py (python3)", Kind.SCRIPT),
    ("bash", BASH, "bash -o errexit nightly.sh", "nightly.sh (bash)", Kind.SHELL_SCRIPT),
    ("nightly.sh", BASH, "/bin/bash /opt/nightly.sh", "nightly.sh (bash)", Kind.SHELL_SCRIPT),
    ("sh", "/bin/dash", "sh -c gzip\\ x", "sh", Kind.INTERPRETER),
    ("bash", BASH, "bash /dev/fd/3", "bash", Kind.INTERPRETER),
    ("sh", "/bin/dash", "sh ./job", "job (sh)", Kind.SHELL_SCRIPT),
    ("node", "/usr/bin/node", "node --require ./hook.js server.js", "server.js (node)", Kind.SCRIPT),
    ("ruby", "/usr/bin/ruby3.1", "ruby -I lib run.rb", "run.rb (ruby3)", Kind.SCRIPT),
    ("java", JAVA, "java -Xmx4g -cp a.jar:b.jar org.apache.kafka.Kafka x", "java org.apache…Kafka", Kind.SCRIPT),
    ("java", JAVA, "java -jar /srv/app.jar", "java app.jar", Kind.SCRIPT),
    ("java", JAVA, "java -version", "java", Kind.INTERPRETER),
    ("redis-server", "/usr/bin/redis-check-rdb", "redis-server *:6379", "redis-server", Kind.BINARY),
    ("prometheus-node", "/bin/prometheus-node-exporter", "", "prometheus-node-exporter", Kind.BINARY),
    ("kswapd0", "", "", "kswapd0", Kind.BINARY),
    ("python3", PYTHON, f"python3 {'x' * 99}.py", f"{'x' * 36}… (python3)", Kind.SCRIPT),
    ("python3", PYTHON, "python3 a\x1b[2Jb.py", "a\\x1b[2Jb.py (python3)", Kind.SCRIPT),
]  # fmt: skip


@pytest.mark.parametrize(("comm", "executable", "line", "name", "kind"), CASES)
def test_programs_have_the_name_of_their_script(
    comm: str, executable: str, line: str, name: str, kind: Kind
) -> None:
    arguments = [word.replace("\0", " ") for word in line.replace("\\ ", "\0").split()]
    assert programs.identify(comm, executable, arguments) == (name, kind)


def test_what_a_script_starts_is_named_after_it() -> None:
    script = programs.Program("nightly.sh (bash)", Kind.SHELL_SCRIPT)
    python = programs.Program("spawn.py (python3)", Kind.SCRIPT)
    shell = programs.Program("sh", Kind.INTERPRETER)
    gzip = programs.Program("gzip", Kind.BINARY)
    for program, ancestors, name in (
        (gzip, [script], "nightly.sh → gzip"),
        (gzip, [shell, shell, script], "nightly.sh → gzip"),
        (shell, [python], "spawn.py → sh"),
        (python, [script], "spawn.py (python3)"),
        (gzip, [python], "gzip"),
        (gzip, [gzip, script], "gzip"),
        (gzip, [], "gzip"),
        (gzip, [shell] * 9 + [script], "gzip"),
        (programs.Program("nightly.sh", Kind.BINARY), [script], "nightly.sh (bash)"),
        (script, [script], "nightly.sh (bash)"),  # a subshell
    ):
        assert programs.full_name(program, ancestors) == name
    assert len(programs.full_name(programs.Program("x" * 60, Kind.BINARY))) == programs.MAX_NAME


def test_pgrep_finds_the_processes_of_a_name(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "gather.and.send.py"
    script.write_text("import sys; print(flush=True); sys.stdin.read()")
    binary = tmp_path / "a-name-of-more-than-15"
    shutil.copy(shutil.which("sleep") or "", binary)
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen([sys.executable, script], **pipe) as python,
        subprocess.Popen([binary, "60"]) as long,
    ):
        python.stdout.readline()
        try:
            for name, pid in (
                ("gather.and.send.py (python3)", python.pid),
                ("gatherXand.send.py (python3)", None),
                (binary.name, long.pid),
                (f"nightly.sh → {binary.name}", long.pid),
            ):
                command = f"pgrep --parent {os.getpid()} {programs.pgrep_arguments(name)}"
                found = subprocess.run(command, shell=True, capture_output=True, check=False)
                assert found.stdout.split() == ([str(pid).encode()] if pid else [])
        finally:
            python.kill()
            long.kill()
    assert programs.pgrep_arguments("java org.apache…Kafka") == "-f -- 'java .*Kafka'"
    assert programs.pgrep_arguments("kswapd0") == "-x -- kswapd0"
