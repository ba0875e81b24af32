from tests.mechanisms import Program, Scene

SCENE = Scene(
    "directory-scan",
    "Lists a folder with thousands of files, over and over.",
    Program(
        """
int main(int n, char **arguments) {
  make_names(arguments[1], "%d", 8000 + 1000 * (SEED % 8));
  for (;;) {
    DIR *folder = opendir(arguments[1]);
    while (readdir(folder));
    closedir(folder);
  }
}
"""
    ),
    Program(
        """
int main(int n, char **arguments) {
  char path[512], text[4096];
  snprintf(path, sizeof path, "%s/state", arguments[1]);
  make_file(path, 3000);
  for (;;) {
    int file = open(path, O_RDONLY);
    while (read(file, text, sizeof text) > 0);
    close(file);
  }
}
"""
    ),
    resembles="opens and reads one file, over and over",
)
