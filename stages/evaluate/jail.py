"""``python -I jail.py FOLDER SECONDS MEBIBYTES NAMESPACES FILE``: a program shut in, then run.

Standard library alone: it is started by path, once for every program. NAMESPACES is ``all``, ``files``
(everything but the network) or ``none``. In new namespaces the program has no network, sees no other
process, and finds everything read-only but FOLDER; rlimits bound time, memory, files and processes.
Exit status 99 says that the namespaces could not be made.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys

REFUSED = 99

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_REC, _MS_PRIVATE, _MS_BIND = 0x4000, 0x40000, 0x1000
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _READ_ONLY = 442, -100, 0x8000, 1
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
# Who the program is in there: not root, so that it keeps no right to undo what is done here.
_INSIDE = 1000
_MIB = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Shuts this process in and becomes the program."""
    folder, seconds, memory, namespaces, file = sys.argv[1:]
    die_with_parent()
    if namespaces != "none":
        try:
            shut_in(folder, network=namespaces == "files")
        except OSError as error:
            print(f"jail: {error}", file=sys.stderr)
            os._exit(REFUSED)
        follow_child()  # the child is process 1 of its namespace: when it ends, all in there end
    limit(float(seconds), int(memory), processes=namespaces != "none")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    os.chdir(folder)
    os.execv(sys.executable, [sys.executable, "-I", "-B", file])


def die_with_parent() -> None:
    """Asks the kernel to kill this process with its parent."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def shut_in(folder: str, *, network: bool) -> None:
    """New user, mount, process and IPC namespaces, and unless ``network`` a network without any device."""
    uid, gid = os.getuid(), os.getgid()
    flags = _NEWUSER | _NEWNS | _NEWPID | _NEWIPC | (0 if network else _NEWNET)
    _check(_libc.unshare(flags), "unshare")
    maps = {"setgroups": "deny", "uid_map": f"{_INSIDE} {uid} 1", "gid_map": f"{_INSIDE} {gid} 1"}
    for name, text in maps.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    place = os.fsencode(folder)
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount private")
    _check(_libc.mount(place, place, None, _MS_BIND, None), "bind")
    _set_read_only(b"/", True)
    _set_read_only(place, False)
    # Other processes' environments can be read there, and with them their secrets.
    _check(_libc.mount(b"tmpfs", b"/proc", b"tmpfs", _READ_ONLY, None), "mount /proc")


def _set_read_only(path: bytes, yes: bool) -> None:
    """The mount at ``path`` becomes read-only with all below it, or writable by itself."""
    on, off = (_READ_ONLY, 0) if yes else (0, _READ_ONLY)
    attributes = struct.pack("QQQQ", on, off, 0, 0)
    depth = _AT_RECURSIVE if yes else 0
    done = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path, depth, attributes, len(attributes))
    _check(done, "mount_setattr")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def follow_child() -> None:
    """Returns in a child; the parent waits for it and ends as it did."""
    child = os.fork()
    if child == 0:
        die_with_parent()
        return
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def limit(seconds: float, memory: int, *, processes: bool) -> None:
    """Processor time, address space, file size, open files; no core files.

    Processes only in a namespace of its own: elsewhere all processes of the user are counted.
    """
    processor = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    for kind, most in (
        (resource.RLIMIT_AS, memory * _MIB),
        (resource.RLIMIT_FSIZE, 16 * _MIB),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
        *([(resource.RLIMIT_NPROC, 64)] if processes else []),
    ):
        resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    main()
