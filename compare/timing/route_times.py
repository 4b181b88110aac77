"""What the ways to build an op come to: how long each takes, and its code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from compare.judge.cases import Case
from compare.judge.parity import Skipped


@dataclass(frozen=True)
class DeviceCode:
    """The machine code of the kernel in a route's binary.

    Attributes:
        instructions: How many there are.
        differing: How many have no equal in the code of the first route, or the other
            way round, whichever are more; names of registers do not count.
    """

    instructions: int
    differing: int


@dataclass(frozen=True)
class Route:
    """What one way to build a .cu takes, and what comes of it.

    Attributes:
        how: What compiles what.
        cold_s: Until the launcher can be called, where nothing was built before.
            Imports, torch's among them, and the CUDA context are not counted.
        warm_s: The same in a second process.
        call_us: Of the bare launcher, on the host; or why that was not measured.
        binary_bytes: The size of what was built.
        code: The kernel's machine code; or why that is not known.
    """

    how: str
    cold_s: float
    warm_s: float
    call_us: float | Skipped
    binary_bytes: int
    code: DeviceCode | Skipped


@dataclass(frozen=True)
class RoutesReport:
    """All routes of an op.

    Attributes:
        op: Its name.
        case: What it is called on.
        kernel: The kernel instance that the case takes, whose code is compared.
        arch: The architecture whose code that is, such as "sm_90a".
        environment: Versions and devices.
        routes: By name: "prebuilt", "load_inline" and "nvrtc".
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    op: str
    case: Case
    kernel: str
    arch: str
    environment: Mapping[str, Any]
    routes: Mapping[str, Route | Skipped]
