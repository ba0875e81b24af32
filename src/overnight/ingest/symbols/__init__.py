"""Resolves addresses to functions, from ELF files, kallsyms, the vdso and maps of JIT compilers."""
