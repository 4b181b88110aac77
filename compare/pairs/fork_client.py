"""Starts the process that workers are forked from, and has it fork watchers."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


class Watcher:
    """A watcher that waits for its plan, and then watches over a worker."""

    def __init__(
        self, server: _Server, folder: Path, input_end: int, output: int, status: int
    ) -> None:
        """Takes its input, and where its output and its status can be read."""
        self._server = server
        self._folder = folder
        self._input = input_end
        self._output = output
        self._status = status

    def finish(self, plan: Mapping[str, Any]) -> tuple[int, str]:
        """Has a plan carried out.

        Returns:
            The watcher's status, and what it printed.
        """
        line = memoryview(json.dumps(plan).encode("ascii") + b"\n")
        with contextlib.suppress(BrokenPipeError):  # it has ended, which is reported
            while line:
                line = line[os.write(self._input, line) :]
        text, status = self._read_to_end()
        if not status:
            raise self._server.failure()
        return int(status), text

    def end(self) -> None:
        """Ends it, unless it has ended, which ends all others."""
        os.close(self._input)
        self._read_to_end()
        os.close(self._output)
        os.close(self._status)

    def _read_to_end(self) -> tuple[str, str]:
        """Returns what it prints, and its status, once it has ended; "" if read."""
        text = _read(self._output)
        self._server.ask_status(self._folder)
        return text, _read(self._status)


class _Server:
    """A process of `fork_server`."""

    def __init__(self) -> None:
        """Starts it; what it is sent waits until it has imported torch."""
        self._owner = os.getpid()
        self._ending = threading.Lock()
        self._printed: str | None = None  # until it has been ended
        # Messages stay whole, also those of several threads.
        self._connection, other = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "compare.pairs.fork_server"],
                stdin=other.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(module_path())},
                cwd="/",
                start_new_session=True,  # Ctrl-C reaches this process only
            )

    def is_usable(self) -> bool:
        """Whether it runs, and was started by this process, which is no fork."""
        return self._owner == os.getpid() and self._process.poll() is None

    def fork_watcher(self, folder: Path, ends: Sequence[int]) -> None:
        """Sends what `fork_server` says; the caller may close the descriptors."""
        try:
            socket.send_fds(self._connection, [os.fsencode(folder)], ends)
        except OSError:
            raise self.failure() from None

    def ask_status(self, folder: Path) -> None:
        """Has the status of a watcher written, once it has ended."""
        with contextlib.suppress(OSError):  # the pipe then ends without one
            self._connection.send(os.fsencode(folder))

    def failure(self) -> RuntimeError:
        """What to raise if it has ended."""
        self.end()
        return RuntimeError(f"what workers are forked from failed:\n{self._printed}")

    def end(self) -> None:
        """Ends it; watchers and workers go on."""
        with self._ending:
            if self._printed is None:
                self._process.kill()
                printed, _ = self._process.communicate()
                self._printed = printed.decode("utf-8", "replace")
                self._connection.close()


_server: _Server | None = None
_lock = threading.Lock()


def start() -> _Server:
    """Starts the process that workers are forked from, unless this one has it."""
    global _server
    with _lock:
        if _server is None or not _server.is_usable():
            _server = _Server()
        return _server


@atexit.register
def _end_server() -> None:
    if _server is not None and _server.is_usable():
        _server.end()


@contextlib.contextmanager
def watcher(folder: Path) -> Iterator[Watcher]:
    """Has a watcher forked for a private folder; with the block it ends."""
    server = start()
    (input_end, own_input), (own_output, output_end) = os.pipe(), os.pipe()
    own_status, status_end = os.pipe()
    found = Watcher(server, folder, own_input, own_output, own_status)
    try:
        ends = [input_end, output_end, status_end]
        try:
            server.fork_watcher(folder, ends)
        finally:
            for each in ends:
                os.close(each)
        yield found
    finally:
        found.end()


def module_path() -> list[str]:
    """Where this process and its workers find modules."""
    return [*map(os.path.abspath, sys.path)]


def _read(descriptor: int) -> str:
    """Reads to the end."""
    with open(descriptor, "rb", closefd=False) as file:
        return file.read().decode("utf-8", "replace")
