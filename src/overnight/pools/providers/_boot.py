"""The script with which a machine of a cloud starts its agent. It fetches nothing: all of it is in here.

Pure: an order in, a text out. The image needs python3 and systemd, as every usual one has.
"""

from __future__ import annotations

import base64
import gzip
import json
import pathlib
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight import pools

__all__ = ["script"]

AGENT = pathlib.Path(__file__).with_name("_member_agent.py")

# After multi-user.target: a member is ready when all that its image starts is.
# OVERNIGHT_ROOT is for tests; on a machine it is not set.
SCRIPT = """\
#!/bin/sh
# Starts the agent of {member}, a member of the warm pool {pool}.
# The token is good once, and only until the pool gives the member up.
set -eu
umask 077
root=${{OVERNIGHT_ROOT:-}}
place=$root/var/lib/overnight-member
command -v python3 >/dev/null || {{ echo "overnight: this image has no python3" >&2; exit 1; }}
mkdir -p "$place" "$root/etc/systemd/system"
cat > "$place/order.json" <<'ORDER'
{order}
ORDER
python3 -I -S -c 'import base64, gzip, sys
sys.stdout.buffer.write(gzip.decompress(base64.b64decode(sys.stdin.read())))' > "$place/agent.py" <<'AGENT'
{agent}
AGENT
cat > "$root/etc/systemd/system/overnight-member.service" <<UNIT
[Unit]
Description=The agent of a member of a warm pool
Wants=network-online.target
After=network-online.target multi-user.target
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
ExecStart=/usr/bin/env python3 -I -S $place/agent.py $place
Restart=on-failure
RestartSec=5
UMask=0077
NoNewPrivileges=yes
PrivateTmp=yes
ProtectHome=yes
ProtectSystem=strict
ReadWritePaths=$place

[Install]
WantedBy=multi-user.target
UNIT
chmod 644 "$root/etc/systemd/system/overnight-member.service"
systemctl daemon-reload
systemctl enable overnight-member.service
systemctl start --no-block overnight-member.service
# What cloud-init kept of this script, for the token in it.
rm -f "$root"/var/lib/cloud/instance/user-data.txt* "$root"/var/lib/cloud/instance/scripts/part-*
"""


def script(order: pools.Order) -> str:
    """User data for one member; it has the member's token."""
    asked = {
        "member_id": order.member_id,
        "pool": order.pool,
        "template": order.template,
        "endpoint": order.endpoint,
        "token": order.token,
    }
    # mtime: the same order is the same text, as a launch that is made again has to be.
    packed = base64.b64encode(gzip.compress(AGENT.read_bytes(), 9, mtime=0)).decode()
    return SCRIPT.format(
        member=json.dumps(order.member_id),
        pool=json.dumps(order.pool),
        order=json.dumps(asked),
        agent="\n".join(textwrap.wrap(packed, 100)),
    )
