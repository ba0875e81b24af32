from tests.mechanisms import Program, Scene

TEXT = """
static char *folder;

static void *write_log(void *number) {
  char path[512], text[8192] = {1};
  snprintf(path, sizeof path, "%s/%ld.log", folder, (long)number);
  int file = open(path, O_RDWR | O_CREAT, 0600);
  for (unsigned i = 0;; i++) {
    text[0] = i;
    must(pwrite(file, text, sizeof text, (i + SEED) % 512 * sizeof text) > 0, "pwrite");
    SYNC
  }
}

int main(int n, char **arguments) {
  folder = arguments[1];
  for (long i = 1; i < THREADS; i++) start_thread(write_log, i);
  write_log(0);
}
"""
SCENE = Scene(
    "writeback",
    "Threads write to files and call fdatasync after each write.",
    Program("enum { THREADS = 24 };" + TEXT.replace("SYNC", "fdatasync(file);")),
    Program("enum { THREADS = 1 };" + TEXT.replace("SYNC", "")),
    resembles="writes as much into the page cache, without fdatasync",
)
