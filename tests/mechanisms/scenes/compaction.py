import os

from tests.mechanisms import Program, Scene
from tests.mechanisms.scenes import page_faults

FILE = "/proc/sys/vm/compact_memory"

SCENE = Scene(
    "compaction",
    "Compacts the memory of all nodes, over and over.",
    Program(
        """
int main() {
  int file = open("/proc/sys/vm/compact_memory", O_WRONLY);
  must(file >= 0, "compact_memory");
  for (;;) must(pwrite(file, "1", 1, 0) == 1, "write");
}
"""
    ),
    page_faults.SCENE.program,
    resembles="faults in pages, which need no compaction",
    obstacle=lambda: "" if os.access(FILE, os.W_OK) else f"{FILE} is not writable",
)
