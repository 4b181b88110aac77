"""Finds the launches of kernels in CUDA code."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from compare.pairs.cpp_parameters import end_of_angles, split_at_commas
from compare.pairs.cpp_tokens import Token

_OPENING = {")": "(", "]": "[", "}": "{"}
_STATEMENTS = ("return", "else", "do")


@dataclass(frozen=True)
class Launch:
    """A launch by `<<<...>>>`.

    Attributes:
        at: The index of the `<<<`.
        first: Where the launch begins, in parentheses if there are any.
        kernel: The tokens before the `<<<`, such as `ns::k<float>`.
        name: The kernel's name, or that of a pointer to it, without namespaces; empty
            if it is another expression.
        name_end: How many of the tokens end with the name.
        n_template_arguments: How many are given; None if there are no angle brackets.
        begin: The `<<<`.
        end: The `>>>`.
        parenthesis: The one that opens the arguments.
        arguments: The tokens of every argument.
    """

    at: int
    first: Token
    kernel: Sequence[Token]
    name: str
    name_end: int
    n_template_arguments: int | None
    begin: Token
    end: Token
    parenthesis: Token
    arguments: Sequence[Sequence[Token]]


def launches(code: Sequence[Token]) -> Iterator[Launch]:
    """Yields the launches by `<<<...>>>`, in order.

    Args:
        code: A file's, or the body of a macro's, without spaces and comments.
    """
    for i, token in enumerate(code):
        if token.kind == "launch" and token.text == "<<<":
            close = _end_of_configuration(code, i)
            last = end_of_brackets(code, close + 1)
            first = _begin_of_kernel(code, i)
            kernel = code[first:i]
            if kernel[0].text == "(" and end_of_brackets(kernel, 0) == len(kernel) - 1:
                kernel = kernel[1:-1]
            name_end = _end_of_name(kernel)
            angles = kernel[name_end:]
            yield Launch(
                i,
                code[first],
                kernel,
                _name(kernel[:name_end]),
                name_end,
                len(split_at_commas(angles[1:-1])) if angles else None,
                token,
                code[close],
                code[close + 1],
                split_at_commas(code[close + 2 : last]),
            )


def kernel_name(code: Sequence[Token], launch: Launch, kernels: Collection[str]) -> str:
    """Returns the name of the kernel that is launched, also through a variable.

    Args:
        code: That of launches().
        launch: One of them.
        kernels: The names of kernels.

    Returns:
        The kernel to which alone the variable is set where the launch sees it, as by
        `auto kernel = &k<float>;`. Otherwise the name that the launch itself gives.
    """
    found = set()
    depth = 0
    for i in range(launch.at, 0, -1):
        depth += {"}": 1, "{": -1}.get(code[i].text, 0)
        depth = max(depth, 0)  # a brace that is still open
        is_set = code[i].text == "=" and code[i - 1].text == launch.name
        if is_set and depth == 0:
            i += 1
            while code[i].text in ("&", "::"):
                i += 1
            while code[i + 1].text == "::":
                i += 2
            found.add(code[i].text)
    return found.pop() if len(found) == 1 and found <= {*kernels} else launch.name


def launched_by_function(
    code: Sequence[Token], kernels: Collection[str]
) -> Iterator[tuple[int, str]]:
    """Yields where a runtime function launches a kernel, and the kernel's name.

    Those are cudaLaunchKernelEx, cudaLaunchKernel and cudaLaunchCooperativeKernel.

    Args:
        code: A file's, or the body of a macro's, without spaces and comments.
        kernels: The names that may be a kernel's.
    """
    for i, token in enumerate(code[:-1]):
        if token.text.startswith("cudaLaunch") and code[i + 1].text == "(":
            inside = code[i + 2 : end_of_brackets(code, i + 1)]
            found = next((t.text for t in inside if t.text in kernels), None)
            if found:
                yield i, found


def end_of_brackets(code: Sequence[Token], begin: int) -> int:
    """Returns the index of the bracket that closes the one at an index."""
    depth = 0
    for i in range(begin, len(code)):
        depth += code[i].text in _OPENING.values()
        depth -= code[i].text in _OPENING
        if depth == 0:
            return i
    return len(code) - 1


def _end_of_configuration(code: Sequence[Token], begin: int) -> int:
    """Returns the index of the `>>>` that belongs to the `<<<` at an index."""
    depth = 0
    for i in range(begin, len(code)):
        if code[i].kind == "launch":
            depth += 1 if code[i].text == "<<<" else -1
            if depth == 0:
                return i
    raise AssertionError("read_tokens pairs them")


def _begin_of_kernel(code: Sequence[Token], end: int) -> int:
    """Returns the index of the first token of the kernel's expression."""
    i = end
    while i:
        text = code[i - 1].text
        if text == ">":
            begin = _begin_of_angles(code, i - 1)
            if begin is None:
                return i
            i = begin
        elif text in _OPENING:
            i = _begin_of_brackets(code, i - 1)
            # (kernel<T>)<<<...>>>, kernels[n]<<<...>>>
            if text == ")" and (not i or code[i - 1].kind != "identifier"):
                return i
        elif code[i - 1].kind == "identifier":
            i -= 1
            if not i or code[i - 1].text not in ("::", ".", "->", "##", "template"):
                return i
        elif text in ("::", ".", "->", "##"):
            i -= 1
            before = code[i - 1] if i else code[i]
            is_name = before.kind == "identifier" and before.text not in _STATEMENTS
            if not is_name and before.text not in (">", ")", "]"):
                return i
        else:
            return i
    return i


def _begin_of_angles(code: Sequence[Token], end: int) -> int | None:
    depth = brackets = 0
    for i in range(end, -1, -1):
        text = code[i].text
        if text in _OPENING:
            brackets += 1
        elif text in _OPENING.values():
            brackets -= 1
        elif brackets == 0 and text in ("<", ">"):
            depth += 1 if text == ">" else -1
            if depth == 0:
                return i
        if brackets < 0 or text == ";":
            return None
    return None


def _begin_of_brackets(code: Sequence[Token], end: int) -> int:
    depth = 0
    for i in range(end, -1, -1):
        depth += code[i].text in _OPENING
        depth -= code[i].text in _OPENING.values()
        if depth == 0:
            return i
    return 0


def _name(code: Sequence[Token]) -> str:
    """Returns the last of the names that `::` joins, or "" if that is not all."""
    if all(token.kind == "identifier" or token.text == "::" for token in code):
        return code[-1].text if code else ""
    return ""


def _end_of_name(kernel: Sequence[Token]) -> int:
    """Returns how many tokens of a kernel's expression end with its name."""
    i = 0
    while i < len(kernel):
        if kernel[i].text == "<":
            close = end_of_angles(kernel, i)
            if close is None or close == len(kernel) - 1:
                return i
            i = close
        i += 1
    return len(kernel)
