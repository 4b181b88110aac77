"""Rewrites single pieces of CUDA code for g++ and the emulator, line for line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from compare.pairs.cpp_declarations import Declaration
from compare.pairs.cpp_tokens import Token, code_of, macro, spaced
from compare.pairs.cuda_launches import Launch, end_of_brackets, kernel_name, launches
from compare.pairs.cuda_source import ParsedFile

_ALIGNMENTS = ("__align__", "alignas", "__attribute__")
_MEMORY = ("extern", "__shared__", "static", "const", "volatile", "__device__")
# Stands for a namespace without a name, which other files cannot reach.
UNNAMED = "own_unnamed"


@dataclass(frozen=True)
class Edit:
    """Puts another text, without line ends, in the place of a part of a file."""

    start: int
    end: int
    text: str


def applied(
    text: str,
    edits: Iterable[Edit],
    blanks: Sequence[tuple[int, int]],
    file: ParsedFile,
) -> str:
    """Returns a file's text after the edits, with as many lines as before.

    Args:
        text: The text.
        edits: They do not overlap; those inside of a blank are dropped.
        blanks: What to leave out, but for the directives that others may need.
        file: What is known of the file.
    """
    kept = [each for each in edits if not any(_is_inside(each, b) for b in blanks)]
    for start, end in blanks:
        if any(a <= start and end <= b for a, b in blanks if (a, b) != (start, end)):
            continue
        for token in file.tokens:
            if start <= token.start < end and _is_needed(token):
                kept.append(Edit(start, token.start, ""))
                start = token.end
        kept.append(Edit(start, end, ""))
    parts, at = [], 0
    for edit in sorted(kept, key=lambda each: (each.start, each.end)):
        assert at <= edit.start, f"two edits of {file.path.name} overlap"
        line_ends = re.findall(r"\\?\n", text[edit.start : edit.end])
        parts += [text[at : edit.start], edit.text, *line_ends]
        at = edit.end
    return "".join((*parts, text[at:]))


class Kernels:
    """The kernels of all files, by name: what their launches have to know."""

    def __init__(self, declarations: Iterable[Declaration]) -> None:
        """Takes the declarations and definitions of kernels, in order."""
        self._declared: dict[str, list[Declaration]] = defaultdict(list)
        for each in declarations:
            if not is_instance(each):
                self._declared[each.name].append(each)

    @property
    def names(self) -> set[str]:
        """Their names, without namespaces."""
        return {*self._declared}

    def parameter_names(self, name: str, launch: Launch) -> str:
        """Returns the names of a kernel's parameters, with commas; "" if unknown."""
        texts = {token.text for each in launch.arguments for token in each}
        fitting = [
            each
            for each in self._declared.get(name, ())
            if len(each.parameters) == len(launch.arguments)
            or texts & {"...", "__VA_ARGS__"}
        ]
        defined = [each for each in fitting if each.body] or fitting
        found = {",".join(p.name for p in each.parameters) for each in defined}
        return found.pop() if len(found) == 1 else ""

    def is_deduced(self, launch: Launch) -> bool:
        """Whether the arguments decide which instance or overload is launched."""
        declared = self._declared.get(launch.name, [])
        if len({_signature(each) for each in declared}) > 1:
            return True
        for each in declared:
            if each.template:
                given = launch.n_template_arguments
                needed = [p for p in each.template if not p.has_default]
                has_pack = any(parameter.is_pack for parameter in each.template)
                return given is None or given < len(needed) or has_pack
        return False

    def pick(self, declaration: Declaration) -> str:
        """Returns a function that picks an instance of a kernel, for its definition.

        Only the first declaration of a kernel gets one.
        """
        same = (_signature(each) for each in self._declared[declaration.name])
        first = self._declared[declaration.name][[*same].index(_signature(declaration))]
        if first is not declaration:
            return ""
        name = declaration.name
        header = spaced(declaration.template_header) or "inline"
        types = ", ".join(each.type for each in declaration.parameters)
        arguments = []
        for each in declaration.template or ():
            if not each.name:
                break
            arguments.append(each.name + "..." * each.is_pack)
        instance = f"{name}<{', '.join(arguments)}>" if declaration.template else name
        return (
            f" {header} auto own_pick_{name}({spaced(declaration.parameter_list)}) "
            f"-> void (*)({types}) {{ return &{instance}; }}"
        )


def is_instance(declaration: Declaration) -> bool:
    """Whether it is an explicit instance or specialization of a template."""
    is_explicit = declaration.template is None and "template" in declaration.words
    return is_explicit or declaration.template == ()


def launch_edits(code: Sequence[Token], kernels: Kernels) -> Iterator[Edit]:
    """Yields the edits that make `<<<...>>>` a call of own::Launch.

    Args:
        code: A file's, or the body of a macro's.
        kernels: Those of all files.
    """
    for launch in launches(code):
        name = kernel_name(code, launch, kernels.names)
        names = kernels.parameter_names(name, launch)
        if kernels.is_deduced(launch):
            end = launch.name_end
            pick = (
                f"{spaced(launch.kernel[: end - 1])}own_pick_{launch.name}"
                f"{spaced(launch.kernel[end:])}"
            )
            run = (
                f".run_deduced([](auto&&... own_arguments) {{ "
                f'return {pick}(own_arguments...); }}, "{names}"'
            )
        else:
            run = f'.run({spaced(launch.kernel)}, "{names}"'
        begin = launch.first.start
        yield Edit(begin, launch.begin.end, "::own::Launch(")
        comma = ", " if launch.arguments else ""
        yield Edit(launch.end.start, launch.parenthesis.end, f"){run}{comma}")
    for i, token in enumerate(code[:-1]):
        if token.text == "cudaLaunchKernelEx" and code[i + 1].text == "(":
            yield Edit(token.start, token.end, "::own::launch_kernel_ex")


def using_edits(code: Sequence[Token], deduced: set[str]) -> Iterator[Edit]:
    """Yields the edits by which `using ns::kernel;` names its own_pick too."""
    begin = 0
    for i, token in enumerate(code):
        if token.text == "using":
            begin = i
        elif token.text == ";" and code[begin].text == "using":
            name = code[i - 1].text
            if name in deduced and code[i - 2].text == "::":
                using = spaced(code[begin : i - 1])
                yield Edit(token.end, token.end, f" {using}own_pick_{name};")
            begin = i


def memory_edits(code: Sequence[Token], outside: set[int]) -> Iterator[Edit]:
    """Yields the edits of shared memory and of words that g++ takes otherwise.

    Args:
        code: A file's, or the body of a macro's.
        outside: The offsets at which declarations at namespace scope begin.
    """
    i = 0
    while i < len(code):
        text = code[i].text
        if text == "__noinline__" and not (i and code[i - 1].text in ("(", ",")):
            yield Edit(code[i].start, code[i].end, "__attribute__((noinline))")
        if text in _MEMORY or text in _ALIGNMENTS:
            words_end = _end_of_words(code, i)
            words = {token.text for token in code[i:words_end]}
            if {"extern", "__shared__"} <= words:
                end = i
                while end < len(code) - 1 and code[end].text != ";":
                    end += 1
                new = _dynamic(code[i : end + 1], code[i].start in outside)
                yield Edit(code[i].start, code[end].end, new)
                i = end
            elif "__shared__" in words and "alignas" in words:
                yield from _alignas_first(code[i:words_end])
                i = words_end - 1
            else:
                i = words_end - 1
        i += 1


def torch_edits(code: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits by which PyTorch code that asks for a GPU takes the CPU."""
    texts = [token.text for token in code]
    for i, token in enumerate(code):
        before = texts[max(i - 2, 0) : i]
        is_member = before[-1:] in (["."], ["->"]) and texts[i + 1 : i + 2] == ["("]
        new = None
        if token.text in ("is_cuda", "cuda") and is_member:
            new = {"is_cuda": "is_cpu", "cuda": "cpu"}[token.text]
        elif token.text == "kCUDA":
            new = "kCPU"
        elif token.text == "CUDA" and before == ["DeviceType", "::"]:
            new = "CPU"
        elif re.fullmatch(r'"cuda(:\d+)?"', token.text):
            new = '"cpu"' if before in (["Device", "("], ["device", "("]) else None
        if new:
            yield Edit(token.start, token.end, new)


def name_edits(file: ParsedFile, kernels: Iterable[Declaration]) -> Iterator[Edit]:
    """Yields the edits by which what is local to a file can be named from another.

    Args:
        file: The file.
        kernels: Its kernels.
    """
    for each in file.declarations:
        is_variable = each.kind == "other" and each.words & {
            "__constant__",
            "__device__",
            "__managed__",
        }
        if each.kind == "unnamed namespace":
            token = next(t for t in each.tokens if t.text == "namespace")
            if each.tokens[0].text == "inline":
                yield Edit(token.end, token.end, f" {UNNAMED}")
            else:
                yield Edit(token.start, token.end, f"inline namespace {UNNAMED}")
        elif is_variable:
            yield from _without(each, ("static",))
    for kernel in kernels:
        # A kernel that is inline is emitted only where it is used.
        yield from _without(kernel, ("static", "inline", "__forceinline__"))


def codes(file: ParsedFile) -> Iterator[Sequence[Token]]:
    """Yields the code of a file, and that of each of its macros."""
    yield code_of(file.tokens)
    for token in file.tokens:
        if defined := macro(token):
            yield code_of(defined.body)


def _is_inside(edit: Edit, blank: tuple[int, int]) -> bool:
    start, end = blank
    if edit.start == edit.end:
        return start < edit.start < end
    return start <= edit.start and edit.end <= end


def _is_needed(token: Token) -> bool:
    """Whether it is a directive that code outside of a blank may depend on."""
    return bool(token.condition) or (
        token.kind == "directive"
        and bool(re.match(r"#\s*(define|undef)\b", token.text))
    )


def _signature(declaration: Declaration) -> tuple[str, ...]:
    # Names of template parameters differ between a declaration and the definition.
    renamed: Mapping[str, str] = {
        each.name: f"${i}" for i, each in enumerate(declaration.template or ())
    }
    types = []
    for parameter in declaration.parameters:
        named = re.sub(r"\w+", lambda m: renamed.get(m[0], m[0]), parameter.type)
        types.append(re.sub(r"\b(__restrict__|const$)|\s", "", named))
    return (declaration.qualified, str(len(declaration.template or ())), *types)


def _end_of_words(code: Sequence[Token], i: int) -> int:
    """Returns the end of the words about memory that begin at an index."""
    while i < len(code):
        is_alignment = code[i].text in _ALIGNMENTS and code[i + 1 : i + 2]
        if is_alignment and code[i + 1].text == "(":
            i = end_of_brackets(code, i + 1) + 1
        elif code[i].text in _MEMORY:
            i += 1
        else:
            break
    return i


def _dynamic(statement: Sequence[Token], is_outside: bool) -> str:
    """Returns what stands for a declaration of dynamic shared memory."""
    type_tokens: list[Token] = []
    semicolon = ";" if statement[-1].text == ";" else ""
    code = statement[:-1] if semicolon else statement
    i = 0
    while i < len(code) and code[i].text != "[":
        if code[i].text in _ALIGNMENTS:
            i = end_of_brackets(code, i + 1)
        elif code[i].text not in ("extern", "__shared__"):
            type_tokens.append(code[i])
        i += 1
    *type_tokens, name = type_tokens
    kind = spaced(type_tokens)
    rest = spaced(code[end_of_brackets(code, i) + 1 :]) if i < len(code) else ""
    if is_outside:
        return f"static const ::own::DynamicShared<{kind}{rest}> {name.text}{semicolon}"
    pointer = f"{kind} (*{{}}){rest}" if rest else f"{kind}*{{}}"
    return (
        f"{pointer.format(f' const {name.text}')} = "
        f"reinterpret_cast<{pointer.format('')}>(::emulator::dynamic_shared())"
        f"{semicolon}"
    )


def _alignas_first(words: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits by which `alignas` precedes all, the only place in g++."""
    i = next(i for i, token in enumerate(words) if token.text == "alignas")
    if i:
        end = end_of_brackets(words, i + 1)
        moved = spaced(words[i : end + 1])
        yield Edit(words[0].start, words[0].start, f"{moved} ")
        yield Edit(words[i].start, words[end].end, "")


def _without(declaration: Declaration, words: tuple[str, ...]) -> Iterator[Edit]:
    """Yields the edits that drop words from the head of a declaration."""
    for token in declaration.tokens[len(declaration.template_header) :]:
        if token.text in ("(", "{", "=", "["):
            break
        if token.text in words:
            yield Edit(token.start, token.end, "")
