"""The declarations of a kernel: parameters, registers, variables, and their scopes.

A listing holds instructions alone. Inline assembly opens scopes with registers and
labels of their own, whose names may occur many times in one kernel.
"""

import math
import re
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass

from compare.assembly.listing import (
    PTX_INSTRUCTION,
    Listing,
    find_entry,
    ptx_parts,
)
from compare.ptx_simulator.values import PtxType, parse_type

_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.\w+\s+"
    r"(?:\.ptr\s+(?:\.(?:global|shared|const|local)\s+)?(?:\.align\s+\d+\s+)?)?"
    r"(?P<name>[\w$]+)"
)
_VARIABLE = re.compile(
    r"(?P<extern>\.extern\s+)?(?:\.\w+\s+)*?\.(?P<space>shared|local|global|const)\s+"
    r"(?:\.attribute\(\S+\)\s+)?(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+"
    r"(?P<name>[\w$]+)(?P<sizes>(?:\[\d*\])*)(?P<values>\s*=[^;]*)?"
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)


@dataclass(frozen=True)
class Variable:
    """Memory that the PTX gives a name to; no bytes if the launch gives them."""

    name: str
    space: str
    bytes: int
    align: int
    element_bytes: int = 1
    values: str = ""  # of its elements when the module is loaded, as they are written

    def initial(self) -> bytearray:
        """What it holds when the module is loaded.

        Raises:
            ValueError: A value is no number: the address of another variable.
        """
        words = re.sub(r"[{}=;\s]", "", self.values).split(",")
        width = self.element_bytes
        # Floats are written as their bits.
        numbers = [int(re.sub(r"^0[fFdD]", "0x", each), 0) for each in words if each]
        mask = (1 << 8 * width) - 1
        given = b"".join((each & mask).to_bytes(width, "little") for each in numbers)
        return bytearray(given.ljust(self.bytes, b"\0"))


@dataclass(frozen=True, eq=False)
class Register:
    """A register; in another scope there may be one of the same name."""

    type: PtxType


# The meaning of names between two braces; of a label its instruction.
_Scope = ChainMap[str, Register | int]


class Declarations:
    """Everything that the text of a listing declares for its kernel.

    Attributes:
        parameters: their names, in order.
        variables: those outside of functions, and those of the kernel.
        jump_tables: the labels of each `.branchtargets`, by its own label.
    """

    def __init__(self, listing: Listing) -> None:
        """Reads the text that the listing was read from."""
        lines = [line.partition("//")[0] for line in listing.text.split("\n")]
        _, start, body = find_entry(lines, listing.kernel)
        self.parameters = tuple(
            found["name"] for found in _PARAMETER.finditer("\n".join(lines[start:body]))
        )
        self.variables = list(_variables_outside_functions(lines))
        self.jump_tables: dict[str, tuple[str, ...]] = {}
        self._scope_of: list[_Scope] = []  # by index of the instruction
        self._read_body(lines, body)

    def register(self, index: int, name: str) -> Register | None:
        """The register that an instruction means by a name."""
        found = self._meaning(index, name)
        return found if isinstance(found, Register) else None

    def target(self, index: int, label: str) -> int | None:
        """The index of the instruction that an instruction means by a label."""
        found = self._meaning(index, label)
        return found if isinstance(found, int) else None

    def _meaning(self, index: int, name: str) -> Register | int | None:
        # ChainMap.get looks twice into each scope, by way of four functions.
        for names in self._scope_of[index].maps:
            found = names.get(name)
            if found is not None:
                return found
        return None

    def _read_body(self, lines: list[str], body: int) -> None:
        scopes: list[_Scope] = []  # that are open
        label = ""  # the last one
        for _, part in ptx_parts(lines, body):
            if part == "{":
                scopes.append(scopes[-1].new_child() if scopes else ChainMap())
            elif part == "}":
                scopes.pop()
            elif part.endswith(":"):
                label = part[:-1]
                scopes[-1][label] = len(self._scope_of)
            elif PTX_INSTRUCTION.fullmatch(part):
                self._scope_of.append(scopes[-1])
            else:
                self._read_directive(part, scopes[-1], label)

    def _read_directive(self, statement: str, scope: _Scope, label: str) -> None:
        if found := _REGISTERS.match(statement):
            register_type = parse_type(found[1])
            if register_type is None:
                return
            for declared in found[2].split(","):
                name, _, count = declared.strip(" >").partition("<")
                for number in range(int(count)) if count else ("",):
                    scope[f"{name}{number}"] = Register(register_type)
        elif found := _VARIABLE.match(statement):
            self.variables.append(_variable(found))
        elif statement.startswith(".branchtargets"):
            targets = statement.removeprefix(".branchtargets").split(",")
            self.jump_tables[label] = tuple(each.strip() for each in targets)


def _variables_outside_functions(lines: list[str]) -> Iterator[Variable]:
    depth = 0  # of braces, those of initial values included
    for line in lines:
        found = _VARIABLE.match(line.strip()) if depth == 0 else None
        if found:
            yield _variable(found)
        if "{" in line or "}" in line:
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
        element_bytes=element,
        values=found["values"] or "",
    )
