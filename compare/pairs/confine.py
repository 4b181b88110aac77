"""What Linux can forbid this process: to write (Landlock), to escape (seccomp)."""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import platform
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# The numbers of the system calls are the same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_SET_NO_NEW_PRIVILEGES = 38

# Rights, by linux/landlock.h.
_WRITE_FILE = 1 << 1
_TRUNCATE = 1 << 14  # since version 3
_REFER = 1 << 13  # to move or link from one folder to another; since version 2
# To remove and to make folders and files of each kind.
_CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))
_BIND_AND_CONNECT_TCP = 0b11  # since version 4
# Signals to processes, and abstract sockets of processes, that are not so restricted;
# since version 6.
_SIGNALS_AND_SOCKETS = 0b11


class _Machine(NamedTuple):
    """Its number by linux/audit.h, and the numbers of its system calls."""

    architecture: int
    setsid: int
    setpgid: int
    clone: int
    clone3: int
    seccomp: int
    fork: int | None


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 112, 109, 56, 435, 317, 57),
    "aarch64": _Machine(0xC00000B7, 157, 154, 220, 435, 277, None),
}
# On x86_64 a second set of the same calls, under other numbers, begins here.
_SECOND_SET = 0x40000000
_SET_FILTER = 1
_ALLOW_SPECULATION = 4  # otherwise older kernels slow the process down
# What clone is told for a thread, and for a child that starts another program at once.
_SHARES_MEMORY = 0x00000100
# Operations of a filter, and where it finds the architecture, the number of the system
# call, and the lower half of its first argument.
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ARCHITECTURE, _NUMBER, _FIRST_ARGUMENT = 4, 0, 16
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000  # to fail with 0 is to pretend

# Devices that keep nothing of what is written to them, and GPUs.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_GPUS = ("/dev/nvidia*", "/dev/nvidia-caps/*")


def is_available() -> bool:
    """Returns whether this kernel can restrict where a process writes."""
    return _version() > 0


def restrict_writing(folders: Sequence[Path]) -> None:
    """Leaves this thread, and what it starts from now on, no place to write but some.

    Elsewhere, to write, make, rename or remove a file raises PermissionError. Reading
    stays free. Where the kernel can, it forbids TCP too, and signals to processes that
    are not so restricted. Permissions and times of files can still be changed.

    Without Landlock nothing is restricted: is_available tells.

    Args:
        folders: Folders below which everything may be written; they exist.
    """
    version = _version()
    if version <= 0:
        return
    _forbid_new_privileges()
    to_file = _WRITE_FILE | (_TRUNCATE if version >= 3 else 0)
    to_folder = to_file | _CHANGE_FOLDER | (_REFER if version >= 2 else 0)
    restricted = [to_folder]  # older kernels take no fields that they do not know
    if version >= 4:
        restricted.append(_BIND_AND_CONNECT_TCP)
    if version >= 6:
        restricted.append(_SIGNALS_AND_SOCKETS)
    attributes = struct.pack(f"={len(restricted)}Q", *restricted)
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for folder in folders:
            _allow(ruleset, os.fspath(folder), to_folder)
        for device in (*_DEVICES, *(path for gpu in _GPUS for path in glob.glob(gpu))):
            if os.path.exists(device) and not os.path.isdir(device):
                _allow(ruleset, device, to_file)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def restrict_processes() -> bool:
    """Forbids this thread, and what it starts from now on, to escape and to multiply.

    - It stays in its process group, which can be killed at once, however fast it starts
      others. To ask for another group or session is answered as if that had been done.
    - It cannot copy itself: os.fork raises BlockingIOError. Copies that copy themselves
      outrun whoever wants to end them. Threads stay possible, and so does starting a
      program, such as the assembler that Triton runs.

    Returns:
        Whether that is so. A kernel without seccomp, and a machine that is neither
        x86_64 nor aarch64, restricts nothing.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    _forbid_new_privileges()
    program = _filter(machine)
    code = ctypes.create_string_buffer(program, len(program))
    filters = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    try:
        _call(machine.seccomp, _SET_FILTER, _ALLOW_SPECULATION, filters)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL):
            raise
        return False
    return True


def _filter(machine: _Machine) -> bytes:
    """The filter's steps: an operation, how far to jump if so and if not, a value."""
    unknown, again = _FAIL | errno.ENOSYS, _FAIL | errno.EAGAIN
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, machine.architecture),
        (_RETURN, 0, 0, unknown),
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, 0, 1, _SECOND_SET),
        (_RETURN, 0, 0, unknown),
        *_return_for(machine.setsid, _FAIL),
        *_return_for(machine.setpgid, _FAIL),
        # Its flags lie in memory, where no filter can look; libraries then use clone.
        *_return_for(machine.clone3, unknown),
        *(_return_for(machine.fork, again) if machine.fork is not None else ()),
        (_IF_EQUAL, 1, 0, machine.clone),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_ANY_BIT, 0, 1, _SHARES_MEMORY),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, again),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _return_for(number: int, result: int) -> list[tuple[int, int, int, int]]:
    """The steps that answer one system call."""
    return [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, result)]


def _forbid_new_privileges() -> None:
    # Both ask for it. It also keeps programs such as sudo from becoming root.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        beneath = struct.pack("=Qi", rights, place)
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, beneath, 0)
    finally:
        os.close(place)


def _version() -> int:
    """The version of Landlock that the kernel has; 0 or less without it."""
    libc = ctypes.CDLL(None)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    return int(version)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    wide = [
        ctypes.c_long(each) if isinstance(each, int) else each for each in arguments
    ]
    result = int(libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"to confine the process: {os.strerror(code)}")
    return result
