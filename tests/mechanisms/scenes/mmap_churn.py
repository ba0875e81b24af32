from tests.mechanisms import Program, Scene

SCENE = Scene(
    "mmap-churn",
    "Maps and unmaps memory, using a page of it each time.",
    Program(
        """
int main() {
  for (size_t size = (SEED % 4 + 1) << 18;;) {
    char *memory = map_memory(size);
    memory[size / 2] = 1;
    munmap(memory, size);
  }
}
"""
    ),
    Program(
        """
int main() {
  char *memory = map_memory(64 << 20);
  for (int value = SEED;; value++) memset(memory, value, 64 << 20);
}
"""
    ),
    resembles="overwrites memory that stays mapped",
)
