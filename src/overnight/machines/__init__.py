"""Boot systemd machines in systemd-nspawn containers on this host."""
