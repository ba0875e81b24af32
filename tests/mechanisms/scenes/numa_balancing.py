import pathlib

from tests.mechanisms import Program, Scene
from tests.mechanisms.scenes import page_faults

NODES = pathlib.Path("/sys/devices/system/node")
BALANCING = pathlib.Path("/proc/sys/kernel/numa_balancing")


def find_obstacle() -> str:
    if len(list(NODES.glob("node[0-9]*"))) < 2:
        return "this host has one memory node"
    if not BALANCING.exists() or BALANCING.read_text().strip() == "0":
        return "NUMA balancing is disabled"
    return ""


SCENE = Scene(
    "numa-balancing",
    "Reads memory of another node, which the kernel unmaps to count and migrate it.",
    Program(
        """
int main(int n, char **arguments) {
  size_t size = 512 << 20;
  cpu_set_t here;
  char *memory = map_memory(size);
  madvise(memory, size, MADV_NOHUGEPAGE);
  sched_getaffinity(0, sizeof here, &here);
  for (volatile long sum = 0;;) {
    move_to(arguments[2]);
    memset(memory, 1, size);
    sched_setaffinity(0, sizeof here, &here);
    for (int round = 0; round < 20; round++)
      for (size_t i = 0; i < size; i += 4096) sum += memory[i];
    madvise(memory, size, MADV_DONTNEED);
  }
}
"""
    ),
    page_faults.SCENE.program,
    resembles="faults in pages of its own node",
    obstacle=find_obstacle,
)
