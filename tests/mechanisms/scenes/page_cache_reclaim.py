from tests.mechanisms import Program, Scene

READ = Program(
    """
int main(int n, char **arguments) {
  char path[512], *views[8];
  size_t size = 160 << 20;
  snprintf(path, sizeof path, "%s/index", arguments[1]);
  make_file(path, size); /* holes: its pages take memory, but no disk */
  int file = open(path, O_RDONLY);
  for (int i = 0; i < 8; i++) { /* to reclaim a page, the kernel visits every mapping of it */
    views[i] = mmap(0, size, PROT_READ, MAP_SHARED, file, 0);
    must(views[i] != MAP_FAILED && !madvise(views[i], size, MADV_RANDOM), "mmap");
  }
  for (volatile long sum = 0;;)
    for (size_t at = 0; at < size; at += 4096) sum += views[0][at];
}
"""
)
# Direct reclaim of the whole host looks the same below shrink_node, but would disturb every other process.
SCENE = Scene(
    "page-cache-reclaim",
    "Reads a file three times as large as the memory limit of its cgroup.",
    READ,
    READ,
    resembles="reads the same file where it fits into the limit",
    kinds=("memory.reclaim",),
    has_cgroup=True,
    limit_mib=48,
    lookalike_limit_mib=512,
)
