from tests.mechanisms import Program, Scene

# 400,000 negative dentries take about 80 MB; removing their folder frees them.
SCENE = Scene(
    "negative-dentries",
    "Looks up paths that do not exist, never the same twice.",
    Program(
        """
int main(int n, char **arguments) {
  char folder[256], path[512];
  for (unsigned long round = 0, key = SEED;; round++) {
    snprintf(folder, sizeof folder, "%s/%lu", arguments[1], round);
    must(!mkdir(folder, 0700), folder);
    for (int i = 0; i < 400000; i++, key++) {
      snprintf(path, sizeof path, "%s/%lx.so.%d", folder, key * 2654435761, i);
      if (access(path, F_OK) == 0) return 1;
    }
    rmdir(folder);
  }
}
"""
    ),
    Program(
        """
int main(int n, char **arguments) {
  char path[512];
  make_names(arguments[1], "%d.so", 2000);
  for (unsigned i = 0;; i++) {
    snprintf(path, sizeof path, "%s/%u.so", arguments[1], i % 2000);
    if (access(path, F_OK)) return 1;
  }
}
"""
    ),
    resembles="looks up paths that exist, all of them cached",
)
