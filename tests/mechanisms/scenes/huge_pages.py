import pathlib

from tests.mechanisms import Program, Scene
from tests.mechanisms.scenes import page_faults

ENABLED = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")


def find_obstacle() -> str:
    if not ENABLED.exists() or "[never]" in ENABLED.read_text():
        return "transparent huge pages are disabled"
    return ""


SCENE = Scene(
    "huge-pages",
    "Faults in transparent huge pages; the kernel clears 2 MB at a time.",
    Program(
        """
int main() {
  size_t huge = 2 << 20, size = (32 + SEED % 64) * huge;
  char *memory = map_memory(size + huge);
  memory += -(size_t)memory % huge;
  must(!madvise(memory, size, MADV_HUGEPAGE), "madvise");
  for (;;) {
    for (size_t i = 0; i < size; i += huge) memory[i] = 1;
    madvise(memory, size, MADV_DONTNEED);
  }
}
"""
    ),
    page_faults.SCENE.program,
    resembles="faults in pages of 4 KB",
    obstacle=find_obstacle,
)
