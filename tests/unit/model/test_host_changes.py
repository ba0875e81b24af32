from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from overnight.model import host_changes

GOOD = (
    ("purge", ""),
    ("reboot", ""),
    ("mask-unit", "ember-scout.service"),
    ("mask-unit", "getty@tty1.service"),
    ("mask-unit", r"dev-disk\x2dby.timer"),
    ("move-irq", "45 3"),
    ("move-irq", "ens31:4 0"),
    ("cap-cpu", "ember.service 50%"),
    ("cap-cpu", "/kubepods.slice/pod-1.scope 250%"),
)
HOSTILE = (
    ("shell", "rm"), ("", ""), ("purge", "all"), ("reboot", "now"), ("reboot", " "),
    ("mask-unit", ""), ("mask-unit", "--now"), ("mask-unit", "-H.service"), ("mask-unit", "a.service b.service"),
    ("mask-unit", "../ssh.service"), ("mask-unit", "/etc/ssh.service"), ("mask-unit", "a;reboot.service"), ("mask-unit", "$(id).service"),
    ("mask-unit", "a.service\n"), ("mask-unit", "a\0.service"), ("mask-unit", "multi-user.target"), ("mask-unit", "*.service"),
    ("mask-unit", ".service"), ("mask-unit", "ünit.service"), ("mask-unit", "system.slice"),
    ("mask-unit", "a" * 400 + ".service"),
    ("move-irq", "45"), ("move-irq", "45 3 4"), ("move-irq", "45 0-3"), ("move-irq", "45 03"), ("move-irq", "045 3"), ("move-irq", "../45 3"), ("move-irq", "-1 3"), ("move-irq", "٤ 3"),
    ("move-irq", "eth0: 3"), ("move-irq", ":1 3"),
    ("cap-cpu", "ember.service"), ("cap-cpu", "ember.service 0%"), ("cap-cpu", "ember.service 50"), ("cap-cpu", "ember.service -5%"),
    ("cap-cpu", "/ 50%"), ("cap-cpu", "/a/../b 50%"), ("cap-cpu", "/a/ 50%"), ("cap-cpu", "a/b 50%"), ("cap-cpu", "/a//b 50%"), ("cap-cpu", "a.timer 50%"),
)  # fmt: skip


@pytest.mark.parametrize(("builtin", "target"), GOOD)
def test_plain_targets_are_accepted(builtin: str, target: str) -> None:
    change = host_changes.parse(builtin, target)
    assert change.target == target
    assert str(change) == f"{builtin} {target}".strip()


@pytest.mark.parametrize(("builtin", "target"), HOSTILE)
def test_everything_else_is_refused(builtin: str, target: str) -> None:
    with pytest.raises(ValueError, match=r"is not|takes"):
        host_changes.parse(builtin, target)


@hypothesis.given(st.sampled_from(host_changes.Builtin), st.text(max_size=40))
def test_no_text_becomes_an_option_or_leaves_its_folder(builtin: str, target: str) -> None:
    try:
        change = host_changes.parse(builtin, target)
    except ValueError:
        return
    for word in change.words:
        assert not word.startswith("-")
        assert ".." not in word.split("/")
        assert word.isascii()
        assert word.isprintable()
        assert not set(word) & set(" ;&|$`'\"<>*?[](){}!~#")
