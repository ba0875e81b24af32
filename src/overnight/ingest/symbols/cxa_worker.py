"""A separate process that demangles C++ names: one line in, one line out.

Lines that arrive together are answered together, because waiting for each other took most of the time.

A mangled name of 250 letters can expand to gigabytes of text, and the C++ library would write it all. Names
come from untrusted files, so a process with limited memory does the work, and can be killed. The reply to a
name that is not C++ is an empty line.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

MEMORY = 512 << 20
MAX_LENGTH = 64 << 10


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    library = ctypes.CDLL("libstdc++.so.6")
    demangle = library["__cxa_demangle"]
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    free = library["free"]
    free.restype = None
    free.argtypes = [ctypes.c_void_p]
    rest = b""
    while chunk := os.read(sys.stdin.fileno(), MAX_LENGTH):
        *lines, rest = (rest + chunk).split(b"\n")
        answers = []
        for line in lines:
            text = demangle(line, None, None, None)
            answer = b""
            if text:
                answer = ctypes.string_at(text)
                free(text)
            answers.append(answer if len(answer) < MAX_LENGTH else b"")
        if answers:
            sys.stdout.buffer.write(b"\n".join(answers) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
