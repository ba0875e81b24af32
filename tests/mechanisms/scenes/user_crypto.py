from tests.mechanisms import Program, Scene
from tests.mechanisms.scenes import python_loop

SCENE = Scene(
    "user-crypto",
    "Hashes memory with OpenSSL, or computes checksums of it.",
    Program(
        """
import hashlib, zlib
hash = (hashlib.sha256, hashlib.sha512, zlib.crc32)[SEED % 3]
data = bytes(1 << 22)
while True:
    hash(data)
""",
        "python",
    ),
    python_loop.LOOP,
    resembles="computes in a Python loop",
)
