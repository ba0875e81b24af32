from tests.mechanisms import Program, Scene

TEXT = """
enum { PAGE = 4096 };
static char *memory;

/* A third of another core: enough to receive the interrupts, too little to saturate it. */
static void *run_elsewhere(void *others) {
  sched_setaffinity(0, sizeof(cpu_set_t), others);
  for (struct timespec begin, now, pause = {0, 1800000};;) {
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
      for (int i = 0; i < 1000; i++) (void)*(volatile char *)memory;
      clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < 1000000);
    nanosleep(&pause, 0);
  }
}

int main() {
  static cpu_set_t others;
  int cores = sysconf(_SC_NPROCESSORS_ONLN);
  for (int i = 0; i < cores; i++) CPU_SET(i, &others);
  CPU_CLR(sched_getcpu(), &others);
  memory = map_memory(3 * PAGE);
  mprotect(memory, 3 * PAGE, PROT_NONE); /* with these neighbours the page stays a mapping of its own */
  memory += PAGE;
  START
  for (;;) {
    mprotect(memory, PAGE, PROT_READ | PROT_WRITE);
    *memory = 1;
    mprotect(memory, PAGE, PROT_READ);
  }
}
"""
SCENE = Scene(
    "tlb-shootdown",
    "Changes the protection of memory that a thread on another core uses.",
    Program(
        TEXT.replace(
            "START",
            "for (int i = 1; i < cores && i < 8; i++) start_thread(run_elsewhere, (long)&others);",
        )
    ),
    Program(TEXT.replace("START", "")),
    resembles="changes the protection of memory that only this core uses",
)
