from tests.mechanisms import Program, Scene

SCENE = Scene(
    "cgroup-churn",
    "Creates and removes memory cgroups.",
    Program(
        """
import os, sys
os.chdir(sys.argv[3])
while True:
    for number in range(2 + SEED % 8):
        os.mkdir(f"job-{number}")
    for number in range(2 + SEED % 8):
        os.rmdir(f"job-{number}")
""",
        "python",
    ),
    Program(
        """
import os, sys
files = [os.open(f"{sys.argv[3]}/{name}", os.O_RDONLY) for name in ("cgroup.procs", "memory.stat")]
while True:
    for file in files:
        os.pread(file, 1 << 16, 0)
""",
        "python",
    ),
    resembles="reads the files of one cgroup",
    has_cgroup=True,
)
