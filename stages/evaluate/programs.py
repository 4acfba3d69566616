"""Running what a model wrote: one program with its tests, shut in, killed as a group when time is up."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from formats.errors import SettingError
from stages.evaluate import jail

PASSED = "passed"
WARNING = (
    "--run-code runs programs written by a model: each in a process of its own, with limits of time and "
    "memory"
)
_FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_TAIL = 2000  # bytes of a program's stderr that are looked at


@dataclass(frozen=True)
class Sandbox:
    """How programs are shut in.

    Attributes:
        seconds: by the clock; by the processor at most a second more.
        memory: MiB of address space.
        namespaces: ``all`` (no network, everything read-only but a temporary folder), ``files`` (the same
            with the network as it is) or ``none`` (limits alone).
    """

    seconds: float
    memory: int
    namespaces: str = "all"

    @classmethod
    def open(cls, seconds: float, memory: int, *, allow_network: bool) -> Sandbox:
        """The strictest one this machine permits.

        Raises:
            SettingError: namespaces are not permitted, and nobody allowed to go on without.
        """
        for namespaces in ("all",) if not allow_network else ("files", "none"):
            box = cls(max(10.0, seconds), max(256, memory), namespaces)
            if box.run("pass", "") == PASSED:
                return cls(seconds, memory, namespaces)
        raise SettingError(
            "programs cannot be kept off the network and away from files here: the kernel does not "
            "permit user, mount and network namespaces",
            fix="run where `unshare --user --net true` works, or add --allow-network to run them with "
            "limits of time and memory alone",
        )

    def says(self) -> str:
        """The warning to give before the first program runs."""
        more = {
            "all": ", without network, and with no file to write outside a temporary folder",
            "files": ", WITH the network, and with no file to write outside a temporary folder",
            "none": ", but WITH the network and with every file that you can write",
        }
        return WARNING + more[self.namespaces]

    def run(self, program: str, tests: str) -> str:
        """Runs ``program``, then ``tests``: ``passed``, or why not.

        It passed when the end of the tests was reached: a program that ends the process early did not.
        """
        token = secrets.token_hex(8)
        end = f"__import__('pathlib').Path('{token}').touch(exist_ok=False)\n"
        with tempfile.TemporaryDirectory(prefix="cluster-cli-") as name:
            folder = Path(name).resolve()
            source = f"{program}\n\n{tests}\n\n{end}"
            (folder / "program.py").write_text(source, encoding="utf-8", errors="replace")
            code, said = self._execute(folder)
            if (folder / token).is_file():
                return PASSED
        return _reason(code, said)

    def _execute(self, folder: Path) -> tuple[int | None, str]:
        """Exit status (None when time was up) and the end of what the program complained."""
        command = [sys.executable, "-I", "-B", jail.__file__, str(folder)]
        command += [str(self.seconds), str(self.memory), self.namespaces, "program.py"]
        with open(folder / ".stderr", "w+b") as complaints:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), **_ONE_THREAD},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)  # whatever it started, too
                process.wait()
            complaints.seek(max(0, complaints.seek(0, os.SEEK_END) - _TAIL))
            return code, complaints.read().decode("utf-8", "replace")


_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LANG": "C.UTF-8"}


def _reason(code: int | None, said: str) -> str:
    if code is None or code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        return "time is up"
    if code == 0:
        return "ended before its tests did"
    if code == jail.REFUSED and said.startswith("jail: "):
        return "could not be shut in"
    last = said.strip().splitlines()[-1:] or [f"exit status {code}"]
    return last[0][:200]


def program_of(answer: str) -> str:
    """The program in an answer: its first fenced block, or all of it."""
    fenced = _FENCE.search(answer)
    return fenced[1] if fenced else answer
