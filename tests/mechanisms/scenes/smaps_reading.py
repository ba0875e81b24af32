from tests.mechanisms import Program, Scene

SCENE = Scene(
    "smaps-reading",
    "Reads /proc/PID/smaps, smaps_rollup or maps of every process, itself with many mappings.",
    Program(
        """
import mmap, pathlib
FILE = ("smaps", "smaps_rollup", "maps")[SEED % 3]
memory = [b"x" * (32 << 20)]
for number in range(1500):  # neighbours differ, or the kernel would merge them
    memory.append(mmap.mmap(-1, 4 * mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE * (number % 2)))
while True:
    for path in pathlib.Path("/proc").glob(f"[0-9]*/{FILE}"):
        try:
            path.read_bytes()
        except OSError:
            pass
""",
        "python",
    ),
    Program(
        """
import os, pathlib, sys
path = pathlib.Path(sys.argv[1], "table")
path.write_bytes(os.urandom(1 << 20) * 48)
while True:
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 16):
            pass
""",
        "python",
    ),
    resembles="reads one large file from the page cache",
)
