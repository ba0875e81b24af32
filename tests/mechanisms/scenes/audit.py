from tests.mechanisms import Scene

SCENE = Scene(
    "audit",
    "The kernel checks each system call against audit rules.",
    # audit_ever_enabled stays set until the next boot: every later process would be slower.
    obstacle=lambda: "not reproduced: enabling auditing cannot be undone without a reboot",
)
