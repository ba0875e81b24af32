from tests.mechanisms import Program, Scene

SCENE = Scene(
    "page-faults",
    "Returns its memory to the kernel and faults it in again, page by page.",
    Program(
        """
int main() {
  size_t size = (32 + 8 * (SEED % 4)) << 20;
  char *memory = map_memory(size);
  madvise(memory, size, MADV_NOHUGEPAGE);
  for (;;) {
    for (size_t i = 0; i < size; i += 4096) memory[i] = 1;
    madvise(memory, size, MADV_DONTNEED);
  }
}
"""
    ),
    Program(
        """
int main() {
  char *memory = map_memory(1 << 20);
  for (int zero = open("/dev/zero", O_RDONLY);;) read(zero, memory, 1 << 20);
}
"""
    ),
    resembles="lets the kernel fill memory that stays mapped",
)
