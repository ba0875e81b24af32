"""Results as files. Modules that write stacks have `write(folded, file)`: the same value gives the same bytes."""
