from tests.mechanisms import Program, Scene
from tests.mechanisms.scenes import negative_dentries

SCENE = Scene(
    "shrinkers",
    "Looks up missing paths in a cgroup at its memory limit: the kernel must free dentries first.",
    Program(
        """
int main(int n, char **arguments) {
  char path[512];
  for (unsigned long key = SEED;; key++) {
    snprintf(path, sizeof path, "%s/%lx.so", arguments[1], key * 2654435761);
    access(path, F_OK);
  }
}
"""
    ),
    negative_dentries.SCENE.program,
    resembles="looks up missing paths without a limit",
    kinds=("memory.reclaim",),
    has_cgroup=True,
    limit_mib=32,
    lookalike_limit_mib=1024,
)
