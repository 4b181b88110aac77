"""Watches over a worker: holds it to its limits, and ends all that it has started.

It is a fork of `fork_server`, and the worker is one of it. On its standard input comes
the plan, a line of JSON; it prints a report in JSON. When the input ends, whoever
started it wants no answer any more, or is dead.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36

_SECONDS_BETWEEN_LOOKS = 0.05
# A look at thousands of processes takes time: it may use this part of a core.
_LOOKING_SHARE = 0.1
# A program has hundreds of threads on a large machine, but not thousands.
MOST_THREADS = 8192
_KEPT_OUTPUT_BYTES = 8192
# A process that waits for a broken device cannot be ended.
_SECONDS_TO_END_ALL = 10.0
_SECONDS_TO_SAY_WHERE = 0.2


class _Process(NamedTuple):
    pid: int
    parent: int
    n_threads: int
    resident_bytes: int


Plan = Mapping[str, Any]
# What a fork does as the worker, and where it is to print; it ends with that.
Work = Callable[[Path, Plan, int], None]


class _Watcher:
    def __init__(self, folder: Path, plan: Plan, work: Work) -> None:
        self.folder = folder
        self.limits = plan["limits"]
        self.status: int | None = None  # of the worker, once it has ended
        self.n_output_bytes = 0
        self.output_tail = b""
        # Before the signals are caught, which the worker must not inherit.
        self.worker, self.output = _start(folder, plan, work)
        # select() wakes up when a child ends.
        self.child_ended, write_end = os.pipe()
        for end in (self.child_ended, write_end):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends all, see main
        self.reap()  # it may have ended already

    def watch(self) -> str:
        """Returns the limit that was broken, "abandoned", or "" if the worker ended."""
        look_at = 0.0
        ends_at = time.monotonic() + self.limits["seconds"]
        open_ends = [sys.stdin.fileno(), self.output, self.child_ended]
        while self.status is None:
            now = time.monotonic()
            if now >= ends_at:
                return "time"
            if now >= look_at:
                if broken := self.look():
                    return broken
                took = time.monotonic() - now
                look_at = now + max(_SECONDS_BETWEEN_LOOKS, took / _LOOKING_SHARE)
            timeout = max(0.0, min(ends_at, look_at) - time.monotonic())
            ready, _, _ = select.select(open_ends, [], [], timeout)
            if sys.stdin.fileno() in ready:  # nothing comes behind the plan
                return "abandoned"
            if self.output in ready and not self.read_output():
                open_ends.remove(self.output)
            if self.n_output_bytes > self.limits["output_bytes"]:
                return "output"
            if self.child_ended in ready:
                os.read(self.child_ended, 4096)
                self.reap()
        return ""

    def look(self) -> str:
        """Returns the limit that the processes break together, or ""."""
        processes = _descendants()
        if len(processes) > self.limits["processes"]:
            return "processes"
        if sum(each.n_threads for each in processes) > MOST_THREADS:
            return "threads"
        most = self.limits["memory_bytes"]
        if sum(each.resident_bytes for each in processes) <= most:
            return ""
        # Memory that processes share counts in each: only now it is worth its time to
        # count it once.
        return "memory" if sum(map(_proportional_bytes, processes)) > most else ""

    def read_output(self) -> bool:
        """Reads what the worker prints, and returns whether more may come."""
        chunk = os.read(self.output, 1 << 16)
        self.n_output_bytes += len(chunk)
        self.output_tail = (self.output_tail + chunk)[-_KEPT_OUTPUT_BYTES:]
        return bool(chunk)

    def reap(self) -> None:
        """Takes note of children that have ended, the worker among them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.worker:
                self.status = os.waitstatus_to_exitcode(status)

    def ask_where_it_is(self) -> None:
        """Has the worker's fault handler write down which lines are being run."""
        dump = self.folder / "faults"
        if self.status is not None or not dump.exists():
            return  # without its fault handler the signal would end it
        os.kill(self.worker, signal.SIGUSR1)
        size = 0
        ends_at = time.monotonic() + _SECONDS_TO_SAY_WHERE
        while time.monotonic() < ends_at:
            time.sleep(0.005)
            if size and dump.stat().st_size == size:
                return
            size = dump.stat().st_size

    def end_all(self) -> list[int]:
        """Ends every process that is left, and returns those that could not be."""
        ends_at = time.monotonic() + _SECONDS_TO_END_ALL
        while True:
            # Those of a group end at once, before they can start others.
            _kill(-self.worker)
            self.reap()
            # The worker may not yet be in its group. Without seccomp others may have
            # left it.
            processes = _descendants()
            if not processes or time.monotonic() > ends_at:
                return [each.pid for each in processes]
            for process in processes:
                _kill(process.pid)
            time.sleep(0.001)


def _start(folder: Path, plan: Plan, work: Work) -> tuple[int, int]:
    """Starts the worker; returns its pid, and where to read its output."""
    libc = ctypes.CDLL(None)
    watcher = os.getpid()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return pid, read_end
    try:
        os.setsid()
        libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() == watcher:  # it may have died before this
            os.chdir(folder / "work")
            work(folder, plan, write_end)
    except OSError as error:
        os.write(write_end, str(error).encode())
    finally:
        os._exit(127)


def _descendants() -> list[_Process]:
    """Returns all processes below this one, also those that have ended unnoticed."""
    children: dict[int, list[_Process]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (process := _read_process(name)):
            children.setdefault(process.parent, []).append(process)
    found = list(children.get(os.getpid(), ()))
    for process in found:  # which grows
        found += children.get(process.pid, ())
    return found


def _read_process(pid: str) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None  # it has ended
    # What precedes is the name, which may hold anything.
    fields = text[text.rindex(b")") + 2 :].split()
    parent, n_threads, pages = (int(fields[i]) for i in (1, 17, 21))
    resident_bytes = pages * os.sysconf("SC_PAGESIZE")
    return _Process(int(pid), parent, n_threads, resident_bytes)


def _proportional_bytes(process: _Process) -> int:
    """Returns the memory of a process, its part only of what it shares with others."""
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended
    except PermissionError:
        pass  # it does not let itself be looked into
    return process.resident_bytes


def _kill(target: int) -> None:
    """Kills a process, or by the negative number of a group, all that are in it."""
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.kill(target, signal.SIGKILL)


def main(folder: Path, work: Work) -> None:
    """Starts the worker once there is a plan, and reports how it ended."""
    if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("prctl(PR_SET_CHILD_SUBREAPER) failed")
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        shutil.rmtree(folder, ignore_errors=True)
        return
    watcher = _Watcher(folder, json.loads(line), work)
    left: list[int] = []
    try:
        broken = watcher.watch()
        if broken in ("time", "memory", "output"):
            watcher.ask_where_it_is()
    finally:
        left = watcher.end_all()
    if broken == "abandoned":
        shutil.rmtree(folder, ignore_errors=True)
        return
    while not left and watcher.read_output():
        pass  # to the end, for all that could write more have ended
    report = {
        "broken": broken,
        "status": watcher.status,
        "output": watcher.output_tail.decode("utf-8", "replace"),
        "left": left,
    }
    sys.stdout.write(json.dumps(report))
    sys.stdout.flush()
