from tests.mechanisms import Program, Scene

TEXT = """
static const char *FILES[] = {"stat", "status", "cmdline"};

static void scan(const char *root) {
  char path[512], text[4096];
  DIR *folder = opendir(root);
  must(folder != 0, root);
  for (struct dirent *entry; (entry = readdir(folder));)
    for (int i = 0; isdigit(entry->d_name[0]) && i < 3; i++) {
      snprintf(path, sizeof path, "%s/%s/%s", root, entry->d_name, FILES[(i + SEED) % 3]);
      int file = open(path, O_RDONLY);
      if (file >= 0) while (read(file, text, sizeof text) > 0);
      if (file >= 0) close(file);
    }
  closedir(folder);
}
"""
SCENE = Scene(
    "proc-scan",
    "Reads stat, status and cmdline of every process, over and over.",
    Program(TEXT + 'int main() { for (;;) scan("/proc"); }'),
    Program(
        TEXT
        + """
int main(int n, char **arguments) {
  char path[512];
  for (int i = 0; i < 60; i++) {
    snprintf(path, sizeof path, "%s/%d", arguments[1], i);
    mkdir(path, 0700);
    for (int k = 0; k < 3; k++) {
      snprintf(path, sizeof path, "%s/%d/%s", arguments[1], i, FILES[k]);
      make_file(path, 700);
    }
  }
  for (;;) scan(arguments[1]);
}
"""
    ),
    resembles="reads as many small files of a folder on disk",
)
