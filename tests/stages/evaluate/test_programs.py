"""Programs shut in: they pass, fail, and cannot do harm."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from formats.errors import SettingError
from stages.evaluate.programs import PASSED, Sandbox, program_of

TIMES_OUT = "time is up"


@pytest.fixture(scope="module")
def box() -> Sandbox:
    try:
        return Sandbox.open(20.0, 512, allow_network=False)
    except SettingError as error:
        pytest.skip(error.problem)


@pytest.mark.parametrize(
    ("program", "tests", "outcome"),
    [
        ("def f(x):\n    return x + 1", "assert f(1) == 2", PASSED),
        ("def f(x):\r\n    return x", "assert f(1) == 2", "AssertionError"),
        ("def f(x:\n", "assert f(1)", "SyntaxError: '(' was never closed"),
        ("import sys\nsys.exit(0)", "assert False", "ended before its tests did"),
        ("import os\nos._exit(0)", "assert False", "ended before its tests did"),
        ("x = 1\nexit(3)", "", "exit status 3"),
        ("from __future__ import annotations", "import json, math", PASSED),
        ("x = 'a' * (1 << 32)", "", "MemoryError"),
        ("", "def check(f):\n    assert f() == 1\ncheck(lambda: 1)", PASSED),
    ],
)
def test_outcomes(box: Sandbox, program: str, tests: str, outcome: str) -> None:
    assert box.run(program, tests) == outcome


def test_no_file_outside_and_none_kept(box: Sandbox, tmp_path: Path) -> None:
    target = tmp_path / "out"
    write = f"open({str(target)!r}, 'w').write('x')"
    assert box.run(write, "") == f"OSError: [Errno 30] Read-only file system: '{target}'"
    inside = "import os\nplace = os.getcwd()\nopen('mine', 'w').write('x')\nraise OSError(place)"
    said = box.run(inside, "")
    assert said.startswith("OSError: ")
    assert not Path(said.removeprefix("OSError: ")).exists()
    assert not target.exists()


def test_the_limits_cannot_be_taken_back(box: Sandbox, tmp_path: Path) -> None:
    program = (
        "import ctypes, struct\n"
        "libc = ctypes.CDLL(None)\n"
        "attributes = struct.pack('QQQQ', 0, 1, 0, 0)\n"
        "done = libc.syscall(442, -100, b'/', 0x8000, attributes, len(attributes))\n"
        f"open({str(tmp_path / 'out')!r}, 'w')"
    )
    assert "Read-only file system" in box.run(program, "")
    assert not (tmp_path / "out").exists()


def test_no_network(box: Sandbox) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        connect = f"import socket\nsocket.create_connection({server.getsockname()!r}, timeout=5)"
        assert box.run(connect, "").startswith(("OSError", "ConnectionRefusedError"))
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()


def test_no_other_process_is_seen(box: Sandbox) -> None:
    assert box.run("import os\nassert os.listdir('/proc') == []", "") == PASSED
    kill = f"import os\nos.kill({os.getpid()}, 9)"
    assert box.run(kill, "") == "ProcessLookupError: [Errno 3] No such process"


def test_time_is_up_and_children_die_too(box: Sandbox) -> None:
    """A child in a session of its own would outlive its group; its namespace ends it."""
    quick = Sandbox(3.0, 512, box.namespaces)
    mark = f"cluster-cli-test-{os.getpid()}"
    program = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', {mark!r}],"
        " start_new_session=True)\n"
        "time.sleep(60)"
    )
    assert quick.run(program, "") == TIMES_OUT
    end = time.monotonic() + 10
    while _running(mark) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _running(mark)


def _running(mark: str) -> bool:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes())
        except OSError:
            continue
    return any(mark.encode() in line for line in found)


def test_a_busy_loop_ends(box: Sandbox) -> None:
    assert Sandbox(2.0, 512, box.namespaces).run("while True: pass", "") == TIMES_OUT


def test_without_namespaces_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that refuses is played by namespaces that cannot be made."""
    real = Sandbox._execute

    def refusing(self: Sandbox, folder: Path) -> tuple[int | None, str]:
        return real(self, folder) if self.namespaces == "none" else (99, "jail: unshare: no\n")

    monkeypatch.setattr(Sandbox, "_execute", refusing)
    with pytest.raises(SettingError) as error:
        Sandbox.open(20.0, 512, allow_network=False)
    assert str(error.value) == (
        "programs cannot be kept off the network and away from files here: the kernel does not permit "
        "user, mount and network namespaces; run where `unshare --user --net true` works, or add "
        "--allow-network to run them with limits of time and memory alone"
    )
    open_box = Sandbox.open(20.0, 512, allow_network=True)
    assert open_box.namespaces == "none"
    assert open_box.says().endswith("but WITH the network and with every file that you can write")
    assert open_box.run("x = 'a' * (1 << 32)", "") == "MemoryError"


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("x = 1", "x = 1"),
        ("Here:\n```python\nx = 1\n```\nand\n```\ny = 2\n```", "x = 1\n"),
        ("```\nx = 1", "x = 1"),
        ("```py\ns = '```'\n```", "s = '```'\n"),
    ],
)
def test_the_first_fenced_block_is_the_program(answer: str, program: str) -> None:
    assert program_of(answer) == program
