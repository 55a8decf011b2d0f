"""The kind of the file system that a file is on, from the kernel's list of mounts (Linux)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from astyqueue.findings import Finding, Severity, note, ok

_MOUNTS: Final = Path("/proc/self/mountinfo")
#: Kinds whose files other machines may have open.
_SHARED: Final = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.s3fs",
        "glusterfs",
        "lustre",
        "virtiofs",
    }
)


def mounted() -> str:
    """The kernel's list of mounts; empty where it has none."""
    try:
        return _MOUNTS.read_text()
    except OSError:
        return ""


def finding(file: Path, mounts: str) -> Finding:
    """Whether the file is on a local disk, and not on a network file system."""
    kind = _kind(file.resolve(), mounts)
    if not kind:
        return note("file system", "unknown", "this machine lists no mounts; SQLite needs a local disk")
    if kind not in _SHARED:
        return ok("file system", kind)
    reason = "its locks between machines are unreliable, and two concurrent writers damage the file"
    remedy = "move the file to a local disk; for several machines use cassandra://"
    return Finding("file system", Severity.PROBLEM, f"{kind}, a network file system", reason, remedy)


def _kind(file: Path, mounts: str) -> str:
    """The kind of the innermost mount that the file is under; of several at one place the last hides the others."""
    places = {".": ""}
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        places[_plain(mount.split()[4])] = rest.split()[0]
    holding = (place for place in map(str, (file, *file.parents)) if place in places)
    return places[next(holding, ".")]


def _plain(place: str) -> str:
    """The path of a mount; the kernel escapes spaces, tabs and backslashes as octal numbers."""
    return place.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
