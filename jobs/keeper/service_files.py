"""Unit files that keep a worker running: for systemd's user manager, and for launchd."""

from __future__ import annotations

import sys
from xml.sax.saxutils import escape

from leap_core.errors import LeapError

SYSTEMD = """\
# ~/.config/systemd/user/leap-worker.service; then: systemctl --user enable --now leap-worker
[Unit]
Description=leap's worker for background jobs

[Service]
ExecStart={python} -m leap_cli jobs worker --foreground{name}
# With jobs_url the password of the server belongs into an EnvironmentFile (PGPASSWORD) or ~/.pgpass.
{environment}Restart=always
RestartSec=2
KillSignal=SIGTERM
TimeoutStopSec=20

[Install]
WantedBy=default.target
"""
LAUNCHD = """\
<?xml version="1.0" encoding="UTF-8"?>
<!-- ~/Library/LaunchAgents/leap.worker.plist; then: launchctl load ~/Library/LaunchAgents/leap.worker.plist -->
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
    <key>Label</key><string>leap.worker</string>
    <key>ProgramArguments</key>
    <array>
        <string>{python}</string><string>-m</string><string>leap_cli</string>
        <string>jobs</string><string>worker</string><string>--foreground</string>{name}
    </array>
{environment}    <key>RunAtLoad</key><true/>
    <key>KeepAlive</key><true/>
</dict>
</plist>
"""


def unit_file(manager: str, leap_home: str | None, name: str | None = None) -> str:
    """The text of the file for ``systemd`` or ``launchd``, for this Python and this LEAP_HOME, and the worker of
    this name. Raises LeapError for a path that such a file cannot name."""
    for path in (sys.executable, leap_home or "", name or ""):
        if any(ord(character) < 32 for character in path):
            raise LeapError(f"a unit file cannot name {path!r}, which holds a control character")
    if manager == "systemd":
        environment = f'Environment="LEAP_HOME={_quoted(leap_home)}"\n' if leap_home else ""
        option = f" --name {_quoted(name)}" if name else ""
        return SYSTEMD.format(python=_quoted(sys.executable), environment=environment, name=option)
    environment = ""
    if leap_home:
        variable = f"<key>LEAP_HOME</key><string>{escape(leap_home)}</string>"
        environment = f"    <key>EnvironmentVariables</key>\n    <dict>{variable}</dict>\n"
    option = f"<string>--name</string><string>{escape(name)}</string>" if name else ""
    return LAUNCHD.format(python=escape(sys.executable), environment=environment, name=option)


def _quoted(text: str | None) -> str:
    """systemd expands % and takes backslashes and quotes for its own."""
    return (text or "").replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace(" ", "\\x20")
