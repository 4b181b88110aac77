"""Foreign code: the parent lives, one sentence is said, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from bindings import child_process
from compare.errors import CompareError, UsageError
from compare.pairs import complaints, confine, exchange, fork_client, sandbox
from compare.pairs.sandbox import ForeignCodeError, Limits

needs_landlock = pytest.mark.skipif(
    not confine.is_available(), reason="needs a kernel with Landlock"
)

_WAITING = """
import sys, time
from compare.pairs import sandbox
sandbox.prepare()
print("waits", flush=True)
time.sleep(1e6)
"""


# Says through a pipe that it runs. The pipe's other end sees when all have ended.
_HANG = """
import time
pipe = open({pipe!r}, "w")
print("runs", file=pipe, flush=True)
time.sleep(1e6)
"""
# Says so too, has started a program, and ends as soon as the pipe is read from.
_WAIT = """
import subprocess
subprocess.Popen(["sleep", "1000"])
pipe = open({pipe!r}, "w")
print("runs", file=pipe, flush=True)
open({pipe!r} + "2").read()
"""
# What a shell starts in the background ignores interrupts, and so do its children.
_PARENT = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
from compare.pairs import sandbox
file, folder = map(Path, sys.argv[1:])
sandbox.run(
    "pair_tasks.load", {"path": str(file)}, files=[file], writable=[folder]
)
"""


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Private folders are made in a folder of the test, which names processes."""
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    yield
    assert _processes_of(private) == []
    assert list(private.iterdir()) == []


def _processes_of(folder: Path) -> list[str]:
    """The forks of this process's servers, and others that work for a folder.

    A fork has its server's environment, as far as /proc tells, but mostly it works in
    the folder; a program that it starts has the folder in its environment.
    """
    parents = _parents()
    forks = [pid for pid in parents if _is_server(pid, parents)]
    servers = {*forks}
    for pid in forks:  # which grows
        forks += [child for child, parent in parents.items() if parent == pid]
    others = [pid for pid in parents if _names_folder(pid, folder)]
    return sorted({*forks, *others} - servers)


def _parents() -> dict[str, str]:
    """The parent of each process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
            found[path.parent.name] = fields[1]
    return found


def _is_server(pid: str, parents: dict[str, str]) -> bool:
    if parents[pid] != str(os.getpid()):
        return False
    with contextlib.suppress(OSError):
        return b"compare.pairs.fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _names_folder(pid: str, folder: Path) -> bool:
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        process = Path("/proc") / pid
        place = os.readlink(process / "cwd")
        variables = (process / "environ").read_bytes().split(b"\0")
        return place.startswith(str(folder)) or any(
            each.startswith(f"TMPDIR={folder}".encode()) for each in variables
        )
    return False


def _run(text: str, tmp_path: Path, **options: Any) -> Any:
    file = tmp_path / "mine.py"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    options.setdefault("limits", Limits(seconds=30))
    return sandbox.run("pair_tasks.load", {"path": str(file)}, files=[file], **options)


def _complaint(text: str, tmp_path: Path, **options: Any) -> tuple[str, str]:
    with pytest.raises(ForeignCodeError) as caught:
        _run(text, tmp_path, **options)
    assert caught.value.exit_code == 1
    return caught.value.kind, str(caught.value)


def test_a_task_answers(tmp_path: Path) -> None:
    text = "RESULT = {'a': [1, 2.5, float('inf'), None, True], 'b': b'\\0x', 'c': 'é'}"
    assert _run(text, tmp_path) == {
        "a": [1, 2.5, math.inf, None, True],
        "b": b"\0x",
        "c": "é",
    }


def test_a_tensor_comes_back(tmp_path: Path) -> None:
    text = "import torch\nRESULT = torch.arange(6).reshape(2, 3).T"
    assert torch.equal(_run(text, tmp_path), torch.arange(6).reshape(2, 3).T)


def test_variables_and_the_working_folder(tmp_path: Path) -> None:
    text = "import os\nRESULT = [os.environ['MINE'], os.listdir(), os.getcwd()]"
    mine, content, folder = _run(text, tmp_path, variables={"MINE": "x"})
    assert (mine, content) == ("x", [])
    assert folder.startswith(str(tmp_path / "private"))


def test_torch_compile_has_a_folder_to_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As it is once torch.compile has run in this process.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "of_this_process"))
    text = """
from torch._inductor.runtime.cache_dir_utils import cache_dir

RESULT = cache_dir()  # which it makes
"""
    assert _run(text, tmp_path).startswith(str(tmp_path / "private"))


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("\n1 / 0", "raised", "mine.py:2: ZeroDivisionError: division by zero"),
        ("x = (", "raised", "mine.py:1: SyntaxError: '(' was never closed"),
        (
            "import nowhere",
            "raised",
            "mine.py:1: ModuleNotFoundError: No module named 'nowhere'",
        ),
        ("raise KeyboardInterrupt", "raised", "mine.py:1: KeyboardInterrupt"),
        ("raise MemoryError", "raised", "mine.py:1: MemoryError"),
        ("input()", "raised", "mine.py:1: EOFError: EOF when reading a line"),
        (
            "raise ValueError('\\x1b[31m\\nred\\u202e')",
            "raised",
            "mine.py:1: ValueError: [31m",
        ),
        (
            "class E(Exception):\n    def __str__(self): exit(1)\nraise E",
            "raised",
            "mine.py:3: E: (its __str__ raised SystemExit)",
        ),
        (
            "def f(): f()\nf()",
            "raised",
            "mine.py:1: RecursionError: maximum recursion depth exceeded",
        ),
        (
            # Copies of copies outrun whoever ends them: none is made.
            "import os\nos.fork()",
            "raised",
            "mine.py:2: BlockingIOError: [Errno 11] Resource temporarily unavailable",
        ),
        (
            "import sys; sys.exit(3)",
            "exited",
            "mine.py:1: ended the process by exit(3)",
        ),
        (
            "raise SystemExit('no')",
            "exited",
            "mine.py:1: ended the process by exit('no')",
        ),
        (
            "import os; os._exit(0)",
            "exited",
            "mine.py: the process ended with status 0 before it had answered",
        ),
        (
            "import os\nprint('so\\nlong', flush=True)\nos._exit(3)",
            "exited",
            "mine.py: the process ended with status 3 before it had answered; the last "
            "that it printed: long",
        ),
        (
            "import ctypes\n\nctypes.string_at(0)",
            "crashed",
            "mine.py:3: the process was killed by SIGSEGV (it accessed memory that is "
            "not its own)",
        ),
        (
            "import os\nos.abort()",
            "crashed",
            "mine.py:2: the process was killed by SIGABRT (the C library or an "
            "assertion gave it up)",
        ),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGRTMIN + 1)",
            "crashed",
            f"mine.py: the process was killed by signal {signal.SIGRTMIN + 1}",
        ),
    ],
)
def test_code_that_fails(text: str, kind: str, sentence: str, tmp_path: Path) -> None:
    assert _complaint(text, tmp_path) == (kind, sentence)


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    _, sentence = _complaint("raise ValueError('x' * 10_000_000)", tmp_path)
    assert sentence.startswith("mine.py:1: ValueError: xxx")
    assert len(sentence) < 350


def test_a_missing_file(tmp_path: Path) -> None:
    missing = tmp_path / "missing.py"
    with pytest.raises(ForeignCodeError, match=r"^missing\.py: FileNotFoundError: "):
        sandbox.run("pair_tasks.load", {"path": str(missing)}, files=[missing])


def test_deep_recursion_in_c(tmp_path: Path) -> None:
    text = (
        "import sys\nsys.setrecursionlimit(1 << 30)\n"
        "class L(list):\n    def __eq__(self, other): return [self] == [other]\n"
        "L() == L()"
    )
    # Later versions of Python count on their own how deep C is.
    kind, sentence = _complaint(text, tmp_path)
    assert kind in ("crashed", "raised")
    assert sentence.startswith("mine.py:4: ")


@pytest.mark.parametrize(
    ("text", "limits", "kind", "sentence"),
    [
        (
            "import time\ntime.sleep(1e9)",
            Limits(seconds=0.5),
            "time",
            "mine.py:2: did not end within 0.5 s",
        ),
        (
            "\n\nwhile True: pass",
            Limits(seconds=0.5),
            "time",
            "mine.py:3: did not end within 0.5 s",
        ),
        (
            "import signal\nfor i in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):\n"
            "    signal.signal(i, signal.SIG_IGN)\nwhile True: pass",
            Limits(seconds=0.5),
            "time",
            "mine.py: did not end within 0.5 s",
        ),
        (
            "import ctypes\n"
            "ctypes.memset(ctypes.create_string_buffer(2 << 30), 1, 2 << 30)",
            Limits(seconds=30, memory_bytes=500 << 20),
            "memory",
            "mine.py:2: took more than 500 MB of memory",
        ),
        (
            "while True: print('x' * 1000)",
            Limits(seconds=30, output_bytes=1 << 20),
            "output",
            "mine.py:1: wrote more than 1 MB of output",
        ),
        (
            "import os\nwhile True: os.write(2, b'x' * 1000)",
            Limits(seconds=30, output_bytes=1 << 20),
            "output",
            "mine.py:2: wrote more than 1 MB of output",
        ),
        (
            "import subprocess, time\n"
            "for _ in range(30): subprocess.Popen(['sleep', '1000'])\n"
            "time.sleep(1000)",
            Limits(seconds=30, processes=10),
            "processes",
            "mine.py: started more than 10 processes",
        ),
    ],
)
def test_limits(
    text: str, limits: Limits, kind: str, sentence: str, tmp_path: Path
) -> None:
    assert _complaint(text, tmp_path, limits=limits) == (kind, sentence)


def test_processes_that_outlive_it_are_ended(tmp_path: Path) -> None:
    # In a session of its own, and without a parent that lives.
    text = (
        "import subprocess, sys\n"
        'start = \'import subprocess as s; s.Popen(["sleep", "1000"], '
        "start_new_session=True)'\n"
        "subprocess.run([sys.executable, '-c', start], start_new_session=True)\n"
        "subprocess.Popen(['sleep', '1000'])\nRESULT = 1"
    )
    assert _run(text, tmp_path) == 1


_RESTRICTED = """
import os, subprocess, sys, threading
from compare.pairs import confine
if not confine.restrict_processes():
    sys.exit("restricts nothing")
os.setsid()
os.setpgid(0, 0)
thread = threading.Thread(target=subprocess.run, args=(["true"],))
thread.start()
thread.join()
subprocess.run("true", shell=True, check=True)
try:
    if not os.fork():
        os._exit(0)
except BlockingIOError:
    print(os.getpgid(0))
"""


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="knows no system calls"
)
def test_a_process_cannot_leave_its_group_nor_copy_itself() -> None:
    arguments = [sys.executable, "-c", _RESTRICTED]
    run = subprocess.run(
        arguments,
        env=child_process.environment({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) == os.getpgid(0)


def test_an_answer_in_parts(tmp_path: Path) -> None:
    text = "def parts():\n    yield 1\n    yield [2.5]\n{}\nRESULT = parts()"
    assert _run(text.format(""), tmp_path) == [1, [2.5]]
    with pytest.raises(ForeignCodeError) as caught:
        _run(text.format("    import os; os._exit(3)"), tmp_path)
    assert (caught.value.kind, caught.value.parts) == ("exited", [1, [2.5]])


@pytest.mark.parametrize(
    "text",
    [
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1e6,)).start()",
        "import atexit, time\natexit.register(time.sleep, 1e6)",
        "import os\nos.closerange(0, 1000)",
        "import os\nos.rmdir(os.getcwd())",
        "import os\nos.chdir('/')",
        "import sys\nsys.stdout = sys.stderr = None",
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    ],
)
def test_an_answer_gets_through(text: str, tmp_path: Path) -> None:
    assert _run(f"{text}\nRESULT = 'through'", tmp_path) == "through"


@needs_landlock
@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.remove(__file__)",
        "import os\nos.rename(__file__, __file__ + '2')",
        "open(__file__, 'a')",
        "open(__file__ + '.log', 'w')",
        "import os\nos.mkdir(os.path.dirname(__file__) + '/new')",
        "import os\nos.truncate(__file__, 0)",
        "import shutil, os\nshutil.rmtree(os.path.dirname(__file__))",
    ],
)
def test_what_is_the_users_stays(text: str, tmp_path: Path) -> None:
    kind, sentence = _complaint(text, tmp_path)
    assert kind == "raised"
    assert ": PermissionError: " in sentence
    assert (tmp_path / "mine.py").read_text() == text
    assert sorted(os.listdir(tmp_path)) == ["mine.py", "private"]


def test_a_cache_may_be_written_to(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    _run(f"open({str(cache / 'x')!r}, 'w').write('kept')", tmp_path, writable=[cache])
    assert (cache / "x").read_text() == "kept"


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    text = "file = open('x', 'wb')\nfile.truncate(5 << 30)"
    kind, sentence = _complaint(text, tmp_path)
    assert (kind, sentence) == (
        "raised",
        "mine.py:2: OSError: [Errno 27] File too large",
    )


@pytest.mark.parametrize(
    "text",
    [
        "open(path, 'wb').write(b'\\xff' * 100)",
        "os.mkfifo(path)",
        "os.symlink('/dev/zero', path)",
        "os.mkdir(path)",
        "open(path, 'wb').truncate(1 << 30)",
    ],
)
def test_any_bytes_may_be_in_the_answer(text: str, tmp_path: Path) -> None:
    head = "import os\npath = os.path.join(os.path.dirname(os.getcwd()), 'answer')\n"
    kind, sentence = _complaint(f"{head}{text}\nos._exit(0)", tmp_path)
    assert kind == "crashed"
    assert sentence.startswith("mine.py: the answer of its process cannot be read: ")


def test_a_fault_of_this_project_is_no_fault_of_the_users(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'path'"):
        sandbox.run("pair_tasks.load", {}, files=[tmp_path / "mine.py"])


def test_what_a_task_refuses_is_raised_again(tmp_path: Path) -> None:
    text = "from compare.errors import UsageError\nraise UsageError('not so')"
    with pytest.raises(UsageError, match=r"^not so$") as caught:
        _run(text, tmp_path)
    assert isinstance(caught.value, CompareError)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_parent(number: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "writable"
    folder.mkdir()
    os.mkfifo(pipe := folder / "pipe")
    file = tmp_path / "mine.py"
    file.write_text(_HANG.format(pipe=str(pipe)))
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(file), str(folder)],
        env=child_process.environment({"TMPDIR": str(tmp_path / "private")}),
        stderr=subprocess.PIPE,
        text=True,
    )
    with parent, pipe.open() as reader:
        assert reader.readline() == "runs\n"
        parent.send_signal(number)
        assert reader.read() == ""  # at the end: nobody has it open any more
        assert parent.stderr
        errors = parent.stderr.read()
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in errors
    else:
        _wait_for_end_of(tmp_path / "private")


def test_a_watcher_that_is_killed_takes_the_worker_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "writable"
    folder.mkdir()
    os.mkfifo(pipe := folder / "pipe")
    private = tmp_path / "private"
    with ThreadPoolExecutor() as pool:
        text = _HANG.format(pipe=str(pipe))
        running = pool.submit(_complaint, text, tmp_path, writable=[folder])
        with pipe.open() as reader:
            assert reader.readline() == "runs\n"
            found = _processes_of(private)
            (watcher,) = (pid for pid in found if not _names_folder(pid, private))
            os.kill(int(watcher), signal.SIGKILL)
            assert reader.read() == ""  # the worker has ended
        kind, sentence = running.result()
    assert kind == "crashed"
    said = "mine.py: the process that watched over it was killed by SIGKILL"
    assert sentence.startswith(said)


def _wait_for_end_of(folder: Path) -> None:
    """Waits for the watchers, whom no parent waits for any more.

    One that has just begun may start its worker after it was looked for.
    """
    while pids := _processes_of(folder):
        with contextlib.suppress(ProcessLookupError), _opened(int(pids[0])) as process:
            assert select.select([process], [], [], 10)[0], f"{pids[0]} does not end"


@contextlib.contextmanager
def _opened(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_what_runs_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "writable"
    folder.mkdir()
    pipe = folder / "pipe"
    for path in (pipe, second := folder / "pipe2"):
        os.mkfifo(path)
    with ThreadPoolExecutor() as pool:
        text = _WAIT.format(pipe=str(pipe))
        running = pool.submit(_run, text, tmp_path, writable=[folder])
        with pipe.open() as reader:
            assert reader.readline() == "runs\n"
            found = _processes_of(tmp_path / "private")
            named = [pid for pid in found if _names_folder(pid, tmp_path / "private")]
        second.write_text("")
        running.result()
    assert len(found) == 3  # the watcher, the worker and the program
    assert len(named) == 2  # all but the watcher, which no folder names


_LEAVES = """
import os, sys, tempfile, threading, torch
os.environ["LEFT"] = sys.modules["left"] = torch.left = "left"
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1 + torch.get_num_threads())
sys.path.append("left")
tempfile.tempdir = "left"
"""
_FINDS = """
import os, sys, tempfile, torch
RESULT = [
    "LEFT" in os.environ,
    "left" in sys.modules,
    hasattr(torch, "left"),
    str(torch.get_default_dtype()),
    torch.get_num_threads(),
    "left" in sys.path,
    tempfile.gettempdir() == os.environ["TMPDIR"],
]
"""


def test_no_worker_sees_what_another_did(tmp_path: Path) -> None:
    before = _run(_FINDS, tmp_path)
    assert before == [
        *(False, False, False, "torch.float32"),
        *(torch.get_num_threads(), False, True),
    ]
    _run(_LEAVES, tmp_path)
    assert _run(_FINDS, tmp_path) == before


def test_a_worker_has_the_environment_and_path_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONE", "x")
    _run("", tmp_path)  # the server runs at the latest now
    monkeypatch.delenv("GONE")
    monkeypatch.setenv("MINE", "\udcff\n=")
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "of_now.py").write_text("X = 1")
    monkeypatch.syspath_prepend(tmp_path / "modules")
    text = """
import os, subprocess, of_now
names = subprocess.run(["env"], capture_output=True).stdout
RESULT = [os.environb.get(b"MINE"), os.environ.get("GONE"), b"GONE=" in names]
"""
    assert _run(text, tmp_path) == [b"\xff\n=", None, False]


def test_a_worker_has_no_descriptor_of_the_server_or_the_watcher(
    tmp_path: Path,
) -> None:
    text = """
import contextlib, os
RESULT = {}
for number in os.listdir("/proc/self/fd"):
    with contextlib.suppress(FileNotFoundError):  # that of the folder itself
        RESULT[number] = os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
"""
    found = _run(text, tmp_path)
    assert found.pop("0") == os.devnull
    assert (found.pop("1"), found.pop("2")) == ("pipe", "pipe")
    assert [Path(each).name for each in found.values()] == ["faults"]


def test_workers_draw_other_random_numbers(tmp_path: Path) -> None:
    text = """
import random, numpy, torch
RESULT = [random.random(), numpy.random.random(), torch.rand(()).item()]
"""
    for one, other in zip(_run(text, tmp_path), _run(text, tmp_path), strict=True):
        assert one != other


def test_what_workers_are_forked_from_has_only_imported(tmp_path: Path) -> None:
    text = """
import os, sys
modules, n_threads = {*sys.modules}, len(os.listdir("/proc/self/task"))
import torch
watcher = open(f"/proc/{os.getppid()}/stat").read()
server = watcher.rpartition(")")[2].split()[1]
# What builds extensions asks CUDA whether there is a GPU while it is imported: forks
# could not use one.
names = "torch", "torch.utils.cpp_extension", "triton", "compare.pairs.cuda_run"
RESULT = [
    [each in modules for each in names],
    [n_threads, len(os.listdir(f"/proc/{server}/task"))],
    torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork(),
    int(server),
]
"""
    found = [_run(text, tmp_path) for _ in range(2)]
    assert found[0] == found[1]  # from one server, too
    assert found[0][:3] == [[True, False, False, False], [1, 1], False]


def test_a_server_that_ends_is_replaced(tmp_path: Path) -> None:
    _run("", tmp_path)
    fork_client.start().end()
    assert _run("RESULT = 1", tmp_path) == 1


def test_a_server_that_ends_meanwhile(tmp_path: Path) -> None:
    folder = tmp_path / "writable"
    folder.mkdir()
    pipe = folder / "pipe"
    for path in (pipe, second := folder / "pipe2"):
        os.mkfifo(path)
    with ThreadPoolExecutor() as pool:
        text = _WAIT.format(pipe=str(pipe))
        running = pool.submit(_run, text, tmp_path, writable=[folder])
        with pipe.open() as reader:
            assert reader.readline() == "runs\n"
            fork_client.start()._process.kill()
        second.write_text("")
        with pytest.raises(RuntimeError, match=r"^what workers are forked from failed"):
            running.result()


def test_a_server_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise ImportError('not today')")
    monkeypatch.setattr(fork_client, "_server", None)
    monkeypatch.syspath_prepend(tmp_path / "broken")
    with pytest.raises(RuntimeError, match="ImportError: not today"):
        _run("", tmp_path)


def test_the_server_does_not_outlive_the_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _WAITING],
        env=child_process.environment({"TMPDIR": str(tmp_path / "private")}),
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout
        assert parent.stdout.readline() == "waits\n"
        assert len(_processes_of(tmp_path / "private")) == 2
        parent.kill()
    _wait_for_end_of(tmp_path / "private")


def _every_dtype() -> list[torch.dtype]:
    found = {each for each in vars(torch).values() if isinstance(each, torch.dtype)}
    return sorted(
        (each for each in found if not str(each).startswith(("torch.q", "torch.bits"))),
        key=str,
    )


def test_every_dtype_is_exchanged(tmp_path: Path) -> None:
    for dtype in _every_dtype():
        content = torch.arange(6 * dtype.itemsize, dtype=torch.uint8) % 2
        try:
            tensor = content.view(dtype).reshape(2, 3)
        except (RuntimeError, TypeError):
            continue  # a dtype without tensors
        exchange.write([tensor, tensor[0, 0]], tmp_path / "file")
        for sent, got in zip(
            (tensor, tensor[0, 0]), exchange.read(tmp_path / "file"), strict=True
        ):
            assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
            assert torch.equal(
                got.reshape(-1).view(torch.uint8), sent.reshape(-1).view(torch.uint8)
            )


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0, 3),
        torch.randn(4, 5).T[::2],
        torch.randn(3, requires_grad=True),
        torch.randn(2, dtype=torch.complex64).conj(),
        torch.tensor(1.5).expand(3, 2),
    ],
)
def test_layouts_are_exchanged(tensor: torch.Tensor, tmp_path: Path) -> None:
    exchange.write(tensor, tmp_path / "file")
    got = exchange.read(tmp_path / "file")
    assert torch.equal(got, tensor)
    assert got.is_contiguous()
    assert not got.requires_grad


@pytest.mark.parametrize(
    "value",
    [object(), {1: 2}, {"a": {2}}, torch.randn(3).to_sparse(), 10**5000],
    ids=["object", "key", "set", "sparse", "integer"],
)
def test_what_cannot_be_exchanged(value: Any, tmp_path: Path) -> None:
    with pytest.raises(exchange.ExchangeError):
        exchange.write(value, tmp_path / "file")


def test_a_cycle_cannot_be_exchanged(tmp_path: Path) -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(exchange.ExchangeError, match="holds itself"):
        exchange.write(cycle, tmp_path / "file")


@pytest.mark.parametrize(
    "header",
    [
        {"tensor": ["float32", [1 << 40]]},
        {"tensor": ["float32", [-1]]},
        {"tensor": ["float32", [True]]},
        {"tensor": ["float32", [math.nan]]},
        {"tensor": ["float32", [1 << 62, 1 << 62, 0]]},
        {"tensor": ["float32", 3]},
        {"tensor": ["manual_seed", [1]]},
        {"tensor": ["qint8", [1]]},
        {"tensor": [[], [1]]},
        {"tensor": []},
        {"bytes": 1 << 50},
        {"bytes": math.inf},
        {"dict": []},
        {"pickle": 1},
        {"bytes": 1, "dict": {}},
        {},
        None,
    ],
)
def test_headers_that_lie(header: Any, tmp_path: Path) -> None:
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + b"four"
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(exchange.ExchangeError):
        exchange.read(tmp_path / "file")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\1",
        b"\xff" * 8,
        (100).to_bytes(8, "little") + b"{",
        (200_000).to_bytes(8, "little") + b"[" * 200_000,
        (2).to_bytes(8, "little") + b"\xff\xff",
        (5000).to_bytes(8, "little") + b"9" * 5000,
    ],
)
def test_files_that_are_no_answer(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(exchange.ExchangeError):
        exchange.read(tmp_path / "file")


def test_an_error_elsewhere_is_not_the_users(tmp_path: Path) -> None:
    nothing: dict[str, int] = {}
    with pytest.raises(KeyError) as caught:
        nothing["x"]
    assert not complaints.is_foreign(caught.value, [tmp_path / "mine.py"])
    assert complaints.is_foreign(caught.value, [Path(__file__)])
    assert complaints.describe(caught.value, [tmp_path / "mine.py"]) == "KeyError: 'x'"
