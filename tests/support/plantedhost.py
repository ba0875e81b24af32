"""A host in a folder, for `overnight snapshot`, with secrets in every possible place."""

from __future__ import annotations

import os
import pathlib

SECRET = "Zx9QwErTy7UiOp3AsDfGh5"  # looks random
WORD = "correcthorsebattery"  # does not: only the name of its field shows that it is secret
PLANTED = (SECRET, WORD, "AKIAIOSFODNN7EXAMPLE")


def build(root: pathlib.Path) -> None:
    files = {
        "etc/os-release": f'ID=debian\nVERSION_ID="12"\nBUILD_TOKEN={WORD}\nIMAGE_ID={SECRET}\n',
        "etc/image-id": f'image_name="al2"\nadmin_password="{WORD}"\n',
        "etc/cloud/build.info": f"build_name: server\nserial: {SECRET}\n",
        "proc/cmdline": f'ro root=/dev/sda1 db.password={WORD} x={SECRET} {SECRET} note="token={WORD} y" AKIAIOSFODNN7EXAMPLE\n',
        "proc/1/mounts": f"/dev/sda1 / ext4 rw,relatime 0 0\n//nas/x /mnt cifs rw,username=u,password={WORD} 0 0\nhttps://u:{WORD}@h/x /net/{SECRET} fuse rw 0 0\noverlay /var/lib/docker/overlay2/x/merged overlay rw 0 0\n",
        "proc/1/environ": f"PASSWORD={WORD}\0",
        "proc/1/cmdline": f"init\0--password\0{WORD}\0",
        "proc/sys/kernel/osrelease": "6.1.0\n",
        "proc/sys/kernel/version": f"#1 {SECRET}\n",
        "proc/sys/kernel/tainted": "12288\n",
        "proc/sys/kernel/random/uuid": f"{SECRET}\n",
        "proc/sys/kernel/random/boot_id": f"{SECRET}\n",
        "proc/sys/kernel/odd": f"{SECRET}\n",
        "proc/sys/kernel/core_pattern": f"|/x --password {WORD} token={WORD}\n",
        "proc/sys/net/ipv4/tcp_fastopen_key": f"{WORD}\n",
        "proc/sys/net/ipv6/conf/all/stable_secret": f"{WORD}\n",
        "proc/sys/net/ipv6/conf/veth1234/mtu": "1500\n",
        "proc/sys/vm/swappiness": "60\n",
        "proc/cpuinfo": f"processor\t: 0\nmodel name\t: CPU {SECRET}\nmicrocode\t: 0x1\nflags\t: b a\n",
        "proc/modules": "ena 151552 0 - Live 0x0000000000000000 (OE)\nxfs 1 0 - Live 0x0000000000000000\n",
        "proc/1/net/tcp": "x\n   0: 00000000:0016 0A0B0C0D:0000 0A 0:0 0:0 0 0 0 4711 1\n",
        "proc/1/net/udp": "x\n",
        "proc/1/comm": f"init {SECRET}\n",
        "proc/1/cgroup": f"0::/system.slice/{SECRET}.service\n",
        "var/lib/cloud/data/status.json": f"""{{"v1": {{"modules-final": {{"start": 1, "finished": 2,
            "errors": ["('scripts_user', RuntimeError('--password {WORD} token={SECRET}'))"]}}}}}}""",
        "proc/meminfo": "MemTotal:  1024 kB\n",
        "proc/cgroups": "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t0\t68680\t1\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX 535.104.05\nGCC\n",
        "sys/module/ena/version": "2.11.0g\n",
        "sys/module/ena/srcversion": "0123456789ABCDEF0123456\n",
        "sys/module/wifi/parameters/wpa_psk": f"{WORD}\n",
        "sys/module/wifi/parameters/mode": f"{SECRET}\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet\n",
        "sys/devices/system/cpu/vulnerabilities/meltdown": "Not affected\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
        "sys/class/net/eth0/mtu": "9001\n",
        "sys/class/net/eth0/address": f"{SECRET}\n",
        "var/lib/dpkg/status": f"Package: bash\nStatus: install ok installed\nVersion: 5.2-1\nArchitecture: amd64\nDescription: {SECRET}\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n",
        "usr/lib/systemd/system/a.service": f"[Service]\nEnvironment=PASSWORD={WORD}\nExecStart=/a --token {SECRET}\nRestart={SECRET}\n",
        f"usr/lib/systemd/system/a.service.d/{SECRET}.conf": "[Service]\nType=simple\n",
        "usr/lib/systemd/system-preset/1.preset": f"enable a.service\ndisable token={WORD}\n",
    }
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (root / "sys/class/net/eth0/device").mkdir()
    (root / "proc/1/fd").mkdir()
    (root / "proc/1/fd/3").symlink_to("socket:[4711]")
    (root / "sys/class/net/eth0/device/driver").symlink_to("../../../../bus/pci/drivers/ena")


def spoil(root: pathlib.Path) -> None:
    """Replace files with those of a broken or hostile host."""
    sys = root / "proc/sys/kernel"
    (sys / "huge").write_text("x" * (1 << 20))
    (sys / "junk").write_bytes(bytes(range(256)))
    os.mkfifo(sys / "fifo")
    (sys / "loop").symlink_to("loop")
    (sys / "out").symlink_to("/etc/passwd")
    (sys / "folder").symlink_to("..")
    (root / "proc/cpuinfo").unlink()
    os.mkfifo(root / "proc/cpuinfo")
    (root / "var/lib/dpkg/status").unlink()
    (root / "var/lib/dpkg/status").touch()
    os.truncate(root / "var/lib/dpkg/status", 1 << 34)
    (root / "etc/os-release").unlink()
    (root / "etc/os-release").symlink_to("os-release")
    (root / "proc/1/mounts").unlink()
    (root / "proc/1/mounts").mkdir()
    deep = root / "proc/sys/deep"
    for _ in range(40):
        deep = deep / "er"
    deep.mkdir(parents=True)
    odd = os.fsdecode(b"\xff\x1b[31m")
    (root / "sys/module" / odd / "parameters").mkdir(parents=True)
    (root / "sys/module" / odd / "version").write_text("1\n")
