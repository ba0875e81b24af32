from tests.mechanisms import Program, Scene

SCENE = Scene(
    "fork-exec",
    "Starts a short program as fast as it can.",
    Program(
        """
int main() {
  char *words[] = {"true", 0};
  for (pid_t pid;;) {
    must(!posix_spawn(&pid, "/bin/true", 0, 0, words, environ), "posix_spawn");
    waitpid(pid, 0, 0);
  }
}
"""
    ),
    Program(
        """
static volatile double sum;
int main() {
  if (start_child()) waitpid(-1, 0, 0);
  for (double i = 1;; i += 1) sum += 1 / i;
}
"""
    ),
    resembles="starts one child, which computes",
    kinds=("process.spawn_storm",),
)
