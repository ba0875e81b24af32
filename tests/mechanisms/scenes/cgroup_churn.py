from tests.mechanisms import Program, Scene

TEXT = """
import os, sys
os.chdir(sys.argv[PLACE])
while True:
    for number in range(8):
        os.mkdir(f"job-{number}")
    for number in range(8):
        os.rmdir(f"job-{number}")
"""
SCENE = Scene(
    "cgroup-churn",
    "Creates and removes memory cgroups.",
    Program(TEXT.replace("PLACE", "3"), "python"),
    Program(TEXT.replace("PLACE", "1"), "python"),
    resembles="creates and removes folders on disk",
    has_cgroup=True,
)
