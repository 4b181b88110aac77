"""Which assembler Triton runs, when it compiles for a GPU that need not be there.

Triton does not promise to keep what is used here; tests/test_code_triton.py pins it.
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from triton import knobs
from triton.backends.nvidia.compiler import (
    CUDABackend,
    get_features,
    get_ptxas,
    get_ptxas_version,
)

from compare.code import tools
from compare.code.architectures import Architecture
from compare.errors import CodegenUnavailable


def assembler_of(architecture: Architecture) -> Path:
    """The assembler that Triton runs.

    Raises:
        CodegenUnavailable: There is none that can be run.
    """
    try:
        return Path(get_ptxas(architecture.number).path)
    except RuntimeError as error:
        raise CodegenUnavailable(
            f"Triton's copy of ptxas cannot be run ({error})", "reinstall triton"
        ) from error


@contextlib.contextmanager
def assembled_by(ptxas: Path, architecture: Architecture) -> Iterator[None]:
    """Has Triton run this assembler in place of its own.

    Raises:
        CodegenUnavailable: Triton passes it over.
    """
    try:
        with knobs.nvidia.scope():
            # Knobs that are set by their names set environment variables as well, which
            # the tools of other threads would inherit.
            path = str(ptxas)
            vars(knobs.nvidia).update(ptxas=path, ptxas_blackwell=path)
            _forget_assembler()
            if assembler_of(architecture) != ptxas:  # it falls back to its own
                raise CodegenUnavailable(
                    f"Triton cannot run {ptxas}", tools.REMEDY_OF_TOOLKIT
                )
            yield
    finally:
        _forget_assembler()


def _forget_assembler() -> None:
    # Triton asks once in a process for the assembler's version, which is part of the
    # names in its disk cache, and for the PTX that goes with it. There, one assembler's
    # code would get the other's name, for every later run to find.
    get_ptxas_version.cache_clear()
    get_features.cache_clear()


@contextlib.contextmanager
def stopped_at_ptx() -> Iterator[None]:
    """Has Triton assemble nothing in this thread: who needs PTX alone need not wait."""
    thread = threading.get_ident()
    add_all, name_of = CUDABackend.add_stages, CUDABackend.hash

    def add_stages(
        backend: Any, stages: dict[str, Any], options: Any, language: Any
    ) -> None:
        add_all(backend, stages, options, language)
        if threading.get_ident() == thread:
            stages["cubin"] = lambda ptx, metadata: b""

    def own_name(backend: Any) -> str:
        # It is part of the names in Triton's disk cache. There, who needs the machine
        # code would find none.
        is_other = threading.get_ident() != thread
        return name_of(backend) if is_other else f"{name_of(backend)}, not assembled"

    with patch.multiple(CUDABackend, add_stages=add_stages, hash=own_name):
        yield
