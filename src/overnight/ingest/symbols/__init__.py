"""Which function an address lies in: from ELF files, kallsyms, the vdso and maps of JIT compilers."""
