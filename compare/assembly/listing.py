"""PTX and SASS text, of either compiler, as a list of instructions."""

import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass

from compare.assembly.classify import Language, access_bytes_of, category_of


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in a source file."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a listing."""

    index: int  # its place among the instructions of the listing
    text_line: int  # its line in the listing's text, counted from 1
    opcode: str
    operands: tuple[str, ...]
    predicate: str  # the register that must be true, with `!` if false; else empty
    labels: tuple[str, ...]  # the labels that stand in front of it
    # Where it comes from, the innermost inlined function first.
    frames: tuple[Frame, ...]
    category: str
    access_bytes: int  # what it moves for one thread, if it is a memory instruction
    # SASS only: the line of the PTX text it was made from; 0 if unknown.
    ptx_line: int = 0

    @property
    def text(self) -> str:
        """The instruction as one writes it."""
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()

    @property
    def stem(self) -> str:
        """The first part of the opcode, which names what is done."""
        return self.opcode.partition(".")[0]

    @property
    def branch_target(self) -> str | None:
        """The label that it may go to, or None if it is no direct branch."""
        if self.stem not in ("bra", "BRA"):
            return None
        return self.operands[-1].removeprefix("`(").removesuffix(")")


@dataclass(frozen=True)
class Listing:
    """The instructions of one kernel, and the text they were read from."""

    language: Language
    kernel: str
    text: str
    instructions: tuple[Instruction, ...]

    def in_category(self, *categories: str) -> tuple[Instruction, ...]:
        """The instructions of these categories, in program order."""
        return tuple(each for each in self.instructions if each.category in categories)


# ---- PTX ----

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]+)"')
_LOCATION = re.compile(
    r"\.loc\s+(?P<place>\d+ \d+ \d+)"
    r"(?:,\s*function_name\s+\S+,\s*inlined_at\s+(?P<caller>\d+ \d+ \d+))?"
    r"\s*(?://\s*(?P<comment>.*))?"
)
_COMMENT_FRAME = re.compile(r"([^\s@\[\]]+):(\d+):\d+")
_ASSEMBLY_BEGINS, _ASSEMBLY_ENDS = "// begin inline asm", "// end inline asm"
_PLACES = (".loc", ".file", _ASSEMBLY_BEGINS, _ASSEMBLY_ENDS)
_PTX_PART = re.compile(r"([{}]|[$\w]+:|[^;]*(?=;));?\s*")
PTX_INSTRUCTION = re.compile(r"(?:@(!?[%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)


def parse_ptx(text: str, kernel: str | None = None) -> Listing:
    """Reads the PTX that nvcc or Triton wrote.

    Args:
        text: a PTX file.
        kernel: the entry to read; the file's first one if not given.

    Raises:
        ValueError: the text has no such entry, or ends within it.
    """
    lines = text.split("\n")
    name, _, body = find_entry(lines, kernel)
    locations = _PtxLocations(lines)
    read = _Instructions("ptx")
    for number, part in ptx_parts(lines, body):
        if part.endswith(":"):
            read.labels.append(part[:-1])
        elif statement := PTX_INSTRUCTION.fullmatch(part):
            read.add(statement, number, locations.frames)
        else:
            locations.read(number, part)
    return Listing("ptx", name, text, tuple(read.all))


def find_entry(lines: list[str], kernel: str | None) -> tuple[str, int, int]:
    """An entry's name, and the indices of the lines that name it and open its body.

    Raises:
        ValueError: there is no such entry.
    """
    for start, line in enumerate(lines):
        # Most lines have none: to look for a word is quicker than for a pattern.
        found = _ENTRY.search(line) if ".entry" in line else None
        if found and kernel in (None, found[1]):
            for body in range(start, len(lines)):
                if lines[body].lstrip().startswith("{"):
                    return found[1], start, body
    raise ValueError(f"no entry {kernel or ''} in the PTX")


def separate_entries(text: str) -> dict[str, str]:
    """The PTX of each entry of a file: the file without the lines of all the others.

    Those lines are empty then, so that the rest keep the numbers by which a listing of
    machine code names them.

    Raises:
        ValueError: the text ends within an entry.
    """
    lines = text.split("\n")
    spans = {}
    for kernel in _ENTRY.findall(text):
        _, start, body = find_entry(lines, kernel)
        *_, (end, _) = ptx_parts(lines, body)
        spans[kernel] = range(start, end)
    separate = {}
    for kernel in spans:
        kept = lines.copy()
        for other, span in spans.items():
            if other != kernel:
                kept[span.start : span.stop] = [""] * len(span)
        separate[kernel] = "\n".join(kept)
    return separate


def ptx_parts(lines: list[str], body: int) -> Iterator[tuple[int, str]]:
    """The parts of the body that a line opens, each with the number of its last line.

    Parts are braces, labels with their colon, statements, and lines that tell where
    these come from: `.loc`, and the comments around inline assembly.

    Raises:
        ValueError: the text ends within the body.
    """
    pending = ""  # the part of a statement that the lines so far hold
    depth = 0  # of braces: inline assembly opens scopes of its own
    for number, line in enumerate(lines[body:], start=body + 1):
        if line.lstrip().startswith(_PLACES):
            yield number, line.strip()
            continue
        pending = f"{pending} {line.partition('//')[0]}".strip()
        while found := _PTX_PART.match(pending):
            part = found[1].rstrip()
            yield number, part
            pending = pending[found.end() :]
            depth += (part == "{") - (part == "}")
            if depth == 0:
                return
    raise ValueError(f"the kernel in line {body + 1} of the PTX has no end")


class _PtxLocations:
    """Follows the .loc directives of a PTX file from line to line.

    nvcc and Triton 3.9 write each level of inlining as `inlined_at`, and name the
    caller's own caller in an earlier .loc. Triton 3.6 writes the whole chain in a
    comment only. Inside a block of inline assembly LLVM counts the lines of the block
    on top of the source line.
    """

    def __init__(self, lines: list[str]) -> None:
        self.frames: tuple[Frame, ...] = ()
        self._files = {
            found[1]: os.path.normpath(found[2])
            for line in lines
            if ".file" in line and (found := _FILE.match(line))
        }
        self._paths = {os.path.basename(path): path for path in self._files.values()}
        self._callers: dict[str, str] = {}
        self._assembly_begin = 0  # the number of the line, inside of inline assembly
        self._is_placed = False

    def read(self, number: int, line: str) -> None:
        """Takes note of a line, if it tells of a location."""
        if line in (_ASSEMBLY_BEGINS, _ASSEMBLY_ENDS):
            self._assembly_begin = number if line == _ASSEMBLY_BEGINS else 0
            self._is_placed = False
        found = _LOCATION.match(line)
        if found is None:
            return
        place = found["place"]
        self._callers[place] = found["caller"] or ""
        if self._assembly_begin and self._is_placed:
            return
        self._is_placed = True
        n_counted = number - self._assembly_begin - 1 if self._assembly_begin else 0
        comment = found["comment"] or ""
        frames = (
            self._frames_of_comment(comment)
            if "@[" in comment
            else self._frames_of_chain(place)
        )
        # Line 0: made by the compiler, for no line of its own. Of two calls that became
        # one, no line tells where it is.
        if frames and frames[0].line != 0:
            own = Frame(frames[0].file, frames[0].line - n_counted)
            self.frames = own, *(each for each in frames[1:] if each.line != 0)

    def _frames_of_comment(self, comment: str) -> tuple[Frame, ...]:
        return tuple(
            Frame(self._paths.get(found[1], found[1]), int(found[2]))
            for found in _COMMENT_FRAME.finditer(comment)
        )

    def _frames_of_chain(self, place: str) -> tuple[Frame, ...]:
        seen = {place: None}
        while (place := self._callers.get(place, "")) and place not in seen:
            seen[place] = None
        numbers = [each.split() for each in seen]
        return tuple(
            Frame(self._files.get(file, file), int(line)) for file, line, _ in numbers
        )


# ---- SASS ----

_SASS_FUNCTION = re.compile(r"\.text\.(\S+):$")
_SASS_LABEL = re.compile(r"(\.L_\w+):$")
_SASS_FRAME = re.compile(r'//## File "(?P<file>[^"]+)", line (?P<line>\d+)')
_SASS_INSTRUCTION = re.compile(
    r"\s*/\*[0-9a-f]+\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;?\s*$"
)
_SCHEDULING_NOTE = re.compile(r"\s[&?]\S+")  # nvdisasm 12.8: `&wr=0x0 ?trans1`
_PTX_FILE = ".nv_debug_ptx_txt"


def parse_sass(text: str, ptx: Listing | None = None) -> Listing:
    """Reads what `nvdisasm -c -g -gi -gp` wrote.

    Args:
        text: the disassembly of one kernel.
        ptx: the PTX it was made from. Where given, source lines are taken from there:
            they are mended there (see `_PtxLocations`).
    """
    frames_of_ptx_line = (
        {each.text_line: each.frames for each in ptx.instructions} if ptx else {}
    )
    name = ptx.kernel if ptx else ""
    read = _Instructions("sass")
    frames: tuple[Frame, ...] = ()
    announced: list[Frame] = []  # by the comment lines since the last instruction
    ptx_line = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if found := _SASS_FRAME.search(line):
            if found["file"] == _PTX_FILE:
                ptx_line = int(found["line"])
            else:
                announced.append(
                    Frame(os.path.normpath(found["file"]), int(found["line"]))
                )
        elif found := _SASS_LABEL.match(line):
            read.labels.append(found[1])
        elif found := _SASS_FUNCTION.match(line):
            name = found[1]
        elif found := _SASS_INSTRUCTION.match(_SCHEDULING_NOTE.sub("", line)):
            frames = tuple(announced) or frames
            announced.clear()
            mended = frames_of_ptx_line.get(ptx_line, frames)
            read.add(found, number, mended, ptx_line)
    # The last cache line is filled up with NOPs behind a branch to itself.
    while read.all and (
        read.all[-1].opcode == "NOP"
        or read.all[-1].branch_target in read.all[-1].labels
    ):
        read.all.pop()
    return Listing("sass", name, text, tuple(read.all))


# ---- both ----


class _Instructions:
    """The instructions that were read, and the labels since the last of them."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self.all: list[Instruction] = []
        self.labels: list[str] = []

    def add(
        self,
        found: re.Match[str],
        text_line: int,
        frames: tuple[Frame, ...],
        ptx_line: int = 0,
    ) -> None:
        """Adds what was found: a predicate or None, the opcode, the operands."""
        predicate, opcode, text = found.groups()
        operands = _split_operands(text)
        whole = f"{opcode} {', '.join(operands)}".rstrip()
        category = category_of(self._language, whole)
        access_bytes = access_bytes_of(self._language, opcode, operands, category)
        self.all.append(
            Instruction(
                index=len(self.all),
                text_line=text_line,
                opcode=opcode,
                operands=operands,
                predicate=predicate or "",
                labels=tuple(self.labels),
                frames=frames,
                category=category,
                access_bytes=access_bytes,
                ptx_line=ptx_line,
            )
        )
        self.labels.clear()


_BRACKET = re.compile(r"[{}\[\]()]")


def _split_operands(text: str) -> tuple[str, ...]:
    """Splits at the commas that stand outside of brackets."""
    if not _BRACKET.search(text):  # most have none
        return tuple(" ".join(part.split()) for part in text.split(",") if part.strip())
    parts, depth = [""], 0
    for character in " ".join(text.split()):
        if character == "," and depth == 0:
            parts.append("")
            continue
        depth += (character in "{[(") - (character in "}])")
        parts[-1] += character
    return tuple(part.strip() for part in parts if part.strip())
