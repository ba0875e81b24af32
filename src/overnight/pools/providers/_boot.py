"""The script that starts the agent on a cloud machine. It downloads nothing: the agent is part of it.

Pure: an order in, a text out. The image needs python3 and systemd.
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

AGENT = pathlib.Path(__file__).with_name("_member_agent.py")

# After multi-user.target: a member is ready when everything that its image starts is ready.
# OVERNIGHT_ROOT is for tests only.
SCRIPT = """\
#!/bin/sh
# Starts the agent of {member}, a member of the warm pool {pool}.
# The token can be used once, and only until the pool gives the member up.
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
Description=overnight agent of a warm pool member
Wants=network-online.target
After=network-online.target multi-user.target
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
ExecStart=/usr/bin/env python3 -I -S $place/agent.py $place $root/
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
# Delete cloud-init's copies of this script: they contain the token.
rm -f "$root"/var/lib/cloud/instance/user-data.txt* "$root"/var/lib/cloud/instance/scripts/part-*
"""


def script(order: pools.Order) -> str:
    """Return the user data of one member, with its token."""
    # mtime=0: a repeated launch must send exactly the same text.
    packed = base64.b64encode(gzip.compress(AGENT.read_bytes(), 9, mtime=0)).decode()
    return SCRIPT.format(
        member=json.dumps(order.member_id),
        pool=json.dumps(order.pool),
        order=json.dumps(order.as_json()),
        agent="\n".join(textwrap.wrap(packed, 100)),
    )
