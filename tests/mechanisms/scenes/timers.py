from tests.mechanisms import Program, Scene

TEXT = """
static void *work(void *number) {
  prctl(PR_SET_TIMERSLACK, 1);
  struct timespec pause = {0, 5000 + 1000 * (SEED % 10)};
  for (;;) PAUSE;
}

int main() {
  for (long i = 1; i < THREADS; i++) start_thread(work, i);
  work(0);
}
"""
SCENE = Scene(
    "timers",
    "Threads sleep for a few microseconds, over and over.",
    Program("enum { THREADS = 16 };" + TEXT.replace("PAUSE", "nanosleep(&pause, 0)")),
    Program(
        "enum { THREADS = 1 };"
        + TEXT.replace("PAUSE", "clock_gettime(CLOCK_MONOTONIC_RAW, &pause)")
    ),
    resembles="reads the clock without sleeping",
)
