"""What a kernel's PTX declares: parameters, registers, variables, and where.

A listing holds instructions alone. Inline assembly opens scopes with registers and
labels of their own, whose names may occur many times in one kernel.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from compare.assembly.listing import (
    PTX_INSTRUCTION,
    Listing,
    find_entry,
    ptx_parts,
)
from compare.ptx_simulator.values import PtxType, parse_type

_ROOT = 0  # the scope of the kernel's body

_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.\w+\s+"
    r"(?:\.ptr\s+(?:\.(?:global|shared|const|local)\s+)?(?:\.align\s+\d+\s+)?)?"
    r"(?P<name>[\w$]+)"
)
_VARIABLE = re.compile(
    r"(?P<extern>\.extern\s+)?(?:\.\w+\s+)*?\.(?P<space>shared|local|global|const)\s+"
    r"(?:\.attribute\(\S+\)\s+)?(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+"
    r"(?P<name>[\w$]+)(?P<sizes>(?:\[\d*\])*)"
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)


@dataclass(frozen=True)
class Variable:
    """Memory that the PTX gives a name to; no bytes if the launch gives them."""

    name: str
    space: str
    bytes: int
    align: int


@dataclass
class _Scope:
    parent: int
    registers: dict[str, PtxType] = field(default_factory=dict)
    families: dict[str, tuple[int, PtxType]] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Register:
    """A register as the scope tells it from others of the same name."""

    scope: int
    name: str
    type: PtxType


class Declarations:
    """Everything that the text of a listing declares for its kernel.

    Attributes:
        parameters: their names, in order.
        variables: those outside of functions, and those of the kernel.
    """

    def __init__(self, listing: Listing) -> None:
        """Reads the text that the listing was read from."""
        lines = [line.partition("//")[0] for line in listing.text.split("\n")]
        _, start, body = find_entry(lines, listing.kernel)
        self.parameters = tuple(
            found["name"] for found in _PARAMETER.finditer("\n".join(lines[start:body]))
        )
        self.variables = list(_variables_outside_functions(lines))
        self._scopes = [_Scope(parent=_ROOT)]
        self._scope_of: list[int] = []  # by index of the instruction
        self._jump_tables: dict[str, tuple[str, ...]] = {}
        self._read_body(lines, body)

    def scope_of(self, index: int) -> int:
        """The innermost scope around an instruction; in it a name means one thing."""
        return self._scope_of[index]

    def register(self, index: int, name: str) -> Register | None:
        """The register that an instruction means by a name."""
        digits = len(name) - len(name.rstrip("0123456789"))
        family, number = name[: len(name) - digits], name[len(name) - digits :]
        for scope in self._scopes_around(index):
            known = self._scopes[scope]
            if name in known.registers:
                return Register(scope, name, known.registers[name])
            if number and family in known.families:
                count, register_type = known.families[family]
                if int(number) < count:
                    return Register(scope, name, register_type)
        return None

    def target(self, index: int, label: str) -> int | None:
        """The index of the instruction that an instruction means by a label."""
        for scope in self._scopes_around(index):
            if label in self._scopes[scope].labels:
                return self._scopes[scope].labels[label]
        return None

    def jump_table(self, name: str) -> tuple[str, ...]:
        """The labels of a `.branchtargets`; none if there is no such table."""
        return self._jump_tables.get(name, ())

    def _scopes_around(self, index: int) -> Iterator[int]:
        scope = self._scope_of[index]
        while scope != _ROOT:
            yield scope
            scope = self._scopes[scope].parent
        yield _ROOT

    def _read_body(self, lines: list[str], body: int) -> None:
        open_scopes: list[int] = []
        label = ""  # the last one
        for _, part in ptx_parts(lines, body):
            if part == "{":
                if open_scopes:
                    self._scopes.append(_Scope(parent=open_scopes[-1]))
                open_scopes.append(len(self._scopes) - 1)
            elif part == "}":
                open_scopes.pop()
                if not open_scopes:
                    return
            elif part.endswith(":"):
                label = part[:-1]
                self._scopes[open_scopes[-1]].labels[label] = len(self._scope_of)
            elif PTX_INSTRUCTION.fullmatch(part):
                self._scope_of.append(open_scopes[-1])
            else:
                self._read_directive(part, open_scopes[-1], label)

    def _read_directive(self, statement: str, scope: int, label: str) -> None:
        if found := _REGISTERS.match(statement):
            register_type = parse_type(found[1])
            if register_type is None:
                return
            for name in found[2].split(","):
                family, _, count = name.strip().partition("<")
                if count:
                    families = self._scopes[scope].families
                    families[family] = (int(count.rstrip(" >")), register_type)
                else:
                    self._scopes[scope].registers[family] = register_type
        elif found := _VARIABLE.match(statement):
            self.variables.append(_variable(found))
        elif statement.startswith(".branchtargets"):
            targets = statement.removeprefix(".branchtargets").split(",")
            self._jump_tables[label] = tuple(each.strip() for each in targets)


def _variables_outside_functions(lines: list[str]) -> Iterator[Variable]:
    depth = 0  # of braces, those of initial values included
    for line in lines:
        found = _VARIABLE.match(line.strip()) if depth == 0 else None
        if found:
            yield _variable(found)
        depth += line.count("{") - line.count("}")


def _variable(found: re.Match[str]) -> Variable:
    sizes = re.findall(r"\[(\d*)\]", found["sizes"])
    is_open = found["extern"] is not None or "" in sizes
    element_type = parse_type(found["type"])
    element = element_type.bytes if element_type else 1
    return Variable(
        name=found["name"],
        space=found["space"],
        bytes=0 if is_open else element * math.prod(map(int, sizes)),
        align=int(found["align"] or element),
    )
