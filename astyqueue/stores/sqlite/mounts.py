"""Which kind of file system a file is on, as far as this machine tells."""

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
    """What the kernel says is mounted; empty where it does not."""
    try:
        return _MOUNTS.read_text()
    except OSError:
        return ""


def finding(file: Path, mounts: str) -> Finding:
    """Whether the file is on a disk of this machine."""
    kind = _kind(file.resolve(), mounts)
    if not kind:
        return note("file system", "not known", "this machine does not tell; SQLite needs a disk of its own machine")
    if kind not in _SHARED:
        return ok("file system", kind)
    reason = "locks between machines are not to be trusted there, and a file that two write at once is damaged"
    remedy = "move the file to a disk of this machine; for several machines use cassandra://"
    return Finding("file system", Severity.PROBLEM, f"{kind}, which is a network's", reason, remedy)


def _kind(file: Path, mounts: str) -> str:
    """The kind of the innermost mount that the file is under; the last one stands where several lie over another."""
    places = {".": ""}
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        places[_plain(mount.split()[4])] = rest.split()[0]
    holding = (place for place in map(str, (file, *file.parents)) if place in places)
    return places[next(holding, ".")]


def _plain(place: str) -> str:
    """A path as it is: the kernel writes what would part it as backslashes and octal numbers."""
    return place.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
