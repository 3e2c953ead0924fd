"""Unit files that keep a worker running: for systemd's user manager, and for launchd."""

from __future__ import annotations

import sys
from xml.sax.saxutils import escape

from leap_core.errors import LeapError

from .table.postgres import without_secrets

SYSTEMD = """\
# ~/.config/systemd/user/leap-worker.service; then: systemctl --user enable --now leap-worker
[Unit]
Description=leap's worker for background jobs

[Service]
ExecStart={python} -m leap_cli jobs worker --foreground{name}
{environment}# A worker that was drained stays ended.
Restart=on-failure
RestartSec=2
KillSignal=SIGTERM
TimeoutStopSec=20

[Install]
WantedBy=default.target
"""
SERVER = """\
Environment="LEAP_JOBS_URL={url}"
# The server's password: PGPASSWORD=... in this file, or a line in ~/.pgpass.
EnvironmentFile=-%h/.config/leap/worker.env
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
    <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
</dict>
</plist>
"""


def unit_file(manager: str, leap_home: str | None, name: str | None = None, jobs_url: str | None = None) -> str:
    """The text of the file for ``systemd`` or ``launchd``, for this Python and this LEAP_HOME, the worker of this name,
    and the server at ``jobs_url``, whose password is left out. Raises LeapError for a path that such a file cannot
    name."""
    url = None if jobs_url is None else without_secrets(jobs_url)
    for path in (sys.executable, leap_home or "", name or "", url or ""):
        if any(ord(character) < 32 for character in path):
            raise LeapError(f"a unit file cannot name {path!r}, which holds a control character")
    if manager == "systemd":
        environment = f'Environment="LEAP_HOME={_quoted(leap_home)}"\n' if leap_home else ""
        environment += SERVER.format(url=_quoted(url)) if url else ""
        option = f" --name {_quoted(name)}" if name else ""
        return SYSTEMD.format(python=_quoted(sys.executable), environment=environment, name=option)
    variables = {"LEAP_HOME": leap_home, "LEAP_JOBS_URL": url}
    pairs = "".join(f"<key>{key}</key><string>{escape(text)}</string>" for key, text in variables.items() if text)
    environment = f"    <key>EnvironmentVariables</key>\n    <dict>{pairs}</dict>\n" if pairs else ""
    option = f"<string>--name</string><string>{escape(name)}</string>" if name else ""
    return LAUNCHD.format(python=escape(sys.executable), environment=environment, name=option)


def _quoted(text: str | None) -> str:
    """systemd expands % and takes backslashes and quotes for its own."""
    return (text or "").replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace(" ", "\\x20")
