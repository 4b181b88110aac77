"""The process that workers are forked from: has imported torch, and nothing of users'.

To import torch takes more than a second of a core, which each worker would need, and to
import what most tasks do a third of one more. What a fork has is what this process has,
so that it does no more than that: it has no thread but one, reads no task, computes
nothing, and asks nothing of CUDA, which a fork could then not use. It does not import
Triton, which decides there whether it interprets.

It is run as a module. Its standard input is a socket, on which `fork_client` sends the
name of a private folder with three descriptors: the input and the output of a watcher,
and where its status is to be written. The same name alone asks for that status. When
the socket ends, so does this process, and the watchers see that their inputs ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from compare.pairs import watch, worker

_IMPORTED = (
    "bindings",
    "compare.pairs.cuda_values",
    "compare.pairs.questions_task",
    "compare.ptx_simulator.simulator",
)
_LONGEST_NAME = 4096
_N_DESCRIPTORS = 3


def main() -> None:
    """Forks a watcher for each folder, until the socket ends."""
    connection = socket.socket(fileno=0)
    for module in _IMPORTED:
        importlib.import_module(module)
    sys.stdout.flush()  # what an import has printed, a fork would print again
    # A collection in a fork would write to, and so copy, the memory of every object.
    gc.freeze()
    watchers: dict[bytes, tuple[int, int]] = {}
    while True:
        name, ends, _, _ = socket.recv_fds(connection, _LONGEST_NAME, _N_DESCRIPTORS)
        if not name:
            return
        if ends:
            pid = os.fork()
            if not pid:
                connection.detach()  # its number is that of the watcher's input
                _watch(Path(os.fsdecode(name)), ends)
            *others, status_end = ends
            for end in others:
                os.close(end)
            watchers[name] = pid, status_end
        elif name in watchers:
            pid, status_end = watchers.pop(name)
            _, status = os.waitpid(pid, 0)
            with contextlib.suppress(BrokenPipeError):
                os.write(status_end, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(status_end)


def _watch(folder: Path, ends: Sequence[int]) -> None:
    """Becomes a watcher, and ends as one."""
    status = 1
    try:
        _use_descriptors(ends[0], ends[1])
        watch.main(folder, _work)
        status = 0
    except BaseException:
        os.write(1, traceback.format_exc().encode())
    finally:  # it must never come back to the server's loop
        os._exit(status)


def _work(folder: Path, plan: watch.Plan, output: int) -> None:
    """Becomes a worker, and ends as one."""
    try:
        _use_descriptors(os.open(os.devnull, os.O_RDONLY), output)
        worker.main(folder, plan)
    except BaseException:
        os.write(1, traceback.format_exc().encode())
    finally:  # nor to the watcher's
        os._exit(1)


def _use_descriptors(input_end: int, output_end: int) -> None:
    """Leaves the process no descriptors but standard input, output and error.

    Not the server's socket either: who has it can start processes that no watcher
    watches over and that nothing confines.
    """
    os.dup2(input_end, 0)
    os.dup2(output_end, 1)
    os.dup2(output_end, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the one by which they were listed
                os.close(int(name))


if __name__ == "__main__":
    main()
