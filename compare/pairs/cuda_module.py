"""Compiles a user's .cu for the emulator, to a library that calls one function of it.

The host part is compiled plainly, beside torch's headers where the file uses torch; the
kernels are compiled on their own, with the call-outs of the emulator's checker. Both
are the user's text, rewritten by cuda_rewriting, and name the user's lines.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch.utils.cpp_extension import include_paths, library_paths

from bindings import build_cache, sources
from bindings.backends import cuda_inline
from bindings.errors import BuildError
from compare.background import start
from compare.code import cache
from compare.errors import BuildFailedError, CompareError, UnavailableError
from compare.pairs import cuda_includes, cuda_rewriting
from compare.pairs.cuda_edits import UNNAMED
from compare.pairs.cuda_source import CudaSource, Function
from compare.printable import printable

# Warnings about the user's code are the user's compiler's to give.
_HOST_FLAGS = ("-std=c++20", "-O0", "-g0", "-w", "-fno-gnu-unique")
_KERNEL_FLAGS = (
    *(each for each in sources.CHECKED_FLAGS if not each.startswith("-W")),
    "-w",
)
_OWN = sources.EMULATOR / "own"
_TORCH_HEADERS = sources.EMULATOR / "torch_headers"
_ERROR = re.compile(r"\berror(?: #[\w-]+)?: |(?=undefined reference to )")
_LONGEST_ERROR = 300
_LONGEST_LOG = 2000
_WANTED = "wanted.json"


@dataclass(frozen=True)
class Module:
    """A shared library that holds one function of a user's.

    Attributes:
        path: The library.
        signatures: By symbol, the kernels that it may launch, demangled.
        uses_torch: Whether the function takes and returns torch's tensors.
    """

    path: Path
    signatures: Mapping[str, str]
    uses_torch: bool


@dataclass(frozen=True)
class Target:
    """What a module calls: a host function, a kernel, or a program's main.

    Attributes:
        expression: Its name in C++, with template arguments: "softmax<float>".
        function: What is known of it.
    """

    expression: str
    function: Function

    @property
    def adapter(self) -> str:
        """C++ that makes a function of it that Python can call."""
        if self.function.name == "main":
            return "own::main_caller(&own_main)"
        if self.function.kind == "kernel":
            names = ",".join(each.name for each in self.function.parameters)
            return f'own::kernel_caller(&{self.expression}, "{names}")'
        defaults = sum(each.has_default for each in self.function.parameters)
        if not defaults:
            return f"own::caller(&{self.expression})"
        return (
            f"own::caller<{defaults}>(&{self.expression}, [](auto&&... own_arguments) "
            f"-> decltype(auto) {{ return {self.expression}("
            "static_cast<decltype(own_arguments)>(own_arguments)...); })"
        )


def build(
    source: CudaSource, targets: Sequence[Target], wrappers: CudaSource | None = None
) -> Module:
    """Compiles a file, unless the cache has what it would become.

    Args:
        source: The file.
        targets: What Python calls, by the number in this order.
        wrappers: A text without kernels that is compiled beside it and has at least a
            declaration of each target, as the cpp_sources of load_inline have.

    Raises:
        BuildFailedError: The file does not compile; the message is the compiler's, with
            the user's file and line.
        BuildError: There is no compiler, or the cache cannot be used.
    """
    name = re.sub(r"\W", "_", source.path.stem)
    # The first time, what no file changes takes longer than the file itself. Two
    # compilers run at a time, on two cores, and end at about the same time.
    uses_torch = source.uses_torch or wrappers is not None
    emulator, checker = cuda_inline.emulator(), cuda_inline.checker()
    own = [_records(), *[_torch_values()] * uses_torch]
    ahead = start(_compile_in_turn, [emulator, checker])
    if uses_torch:
        _compile_header()
    # The host part tells which kernels are wanted: mostly the same as before an edit,
    # and those are compiled meanwhile.
    key = cache.key_of("kernels", str(source.path), *(e.expression for e in targets))
    expected = _kernels_expected(key)
    if expected is not None:
        kernels = _kernel_part(name, source, expected)
        expected_object = start(_compiled, source, kernels)
    hosts = [_host_part(name, source, () if wrappers else targets)]
    host_object = _compiled(source, hosts[0])
    if wrappers:
        hosts.append(_host_part(f"{name}_wrappers", wrappers, targets))
        _compiled(wrappers, hosts[1])
    signatures = _kernels_wanted(source, host_object)
    if expected == [*signatures.values()]:
        expected_object.result()
    else:
        kernels = _kernel_part(name, source, signatures.values())
        _compiled(source, kernels)
        cache.write(key, {_WANTED: json.dumps([*signatures.values()]).encode()})
    # Of what several have, such as functions of std::string, the first is taken: that
    # of the runtime, which calls no checker, then that of the kernels, which does.
    parts = (emulator, *own, checker, kernels, *hosts)
    flags = _link_flags(uses_torch)
    try:
        _compile_in_turn(own)
        ahead.result()
        path = build_cache.shared_library(
            build_cache.Library(f"{name}_own", parts, flags)
        )
    except BuildError as error:
        raise _failure(source, error) from error
    return Module(path, signatures, uses_torch)


def _link_flags(uses_torch: bool) -> tuple[str, ...]:
    flags = [*sources.CHECKED_LINK_FLAGS, "-rdynamic", "-pthread", "-ldl"]
    flags.append("-Wl,--allow-multiple-definition")
    if uses_torch:
        folders = library_paths()
        # It has nothing but the names of the others: to read libtorch_cpu takes the
        # linker longer than all the rest.
        flags += [f"-L{each}" for each in folders] + ["-Wl,--no-as-needed", "-ltorch"]
        flags += [f"-Wl,-rpath,{each}" for each in folders]
    return tuple(flags)


# ---- Parts ---------------------------------------------------------------------------


def _host_part(
    name: str, source: CudaSource, targets: Sequence[Target]
) -> build_cache.Part:
    texts = cuda_rewriting.emulated_host(source)
    folder, main = _written(source, texts)
    flags: tuple[str, ...] = _HOST_FLAGS
    include_folders: tuple[Path, ...] = (folder, sources.EMULATOR)
    headers = [*_headers(sources.EMULATOR)]
    lines = ['#include "own/launch.h"']
    entry = "own/entry.h"
    if source.uses_torch:
        include_folders = (folder, *_torch_folders())
        flags = _torch_flags()
        lines += cuda_includes.torch_lines(source)
        entry = "own/torch_entry.h"
    else:
        lines += cuda_includes.standard_lines(texts)
    lines.append(f'#include "{main}"')
    if targets:
        adapters = ", ".join(each.adapter for each in targets)
        lines += [
            f'#include "{entry}"',
            f"static const own::Call own_entries[] = {{{adapters}}};",
            '#include "own/interface.h"',
        ]
    return build_cache.Part(
        name=f"{name}_host",
        source="\n".join(lines) + "\n",
        flags=flags,
        include_folders=include_folders,
        files=(*sorted(folder.iterdir()), *headers),
    )


def _kernel_part(
    name: str, source: CudaSource, signatures: Iterable[str]
) -> build_cache.Part:
    texts = cuda_rewriting.emulated_kernels(source)
    folder, main = _written(source, texts)
    lines = [
        '#include "own/launch.h"',
        *cuda_includes.standard_lines(texts),
        f'#include "{main}"',
    ]
    instances = (
        f"template __global__ {each};" for each in signatures if _is_template(each)
    )
    return build_cache.Part(
        name=f"{name}_kernels",
        source="\n".join([*lines, *instances]) + "\n",
        flags=_KERNEL_FLAGS,
        include_folders=(
            folder,
            *(_torch_folders() if source.uses_torch else (sources.EMULATOR,)),
        ),
        files=(*sorted(folder.iterdir()), *_headers(sources.EMULATOR)),
    )


def _is_template(signature: str) -> bool:
    """Whether a demangled function is an instance, which its symbol's type tells."""
    return bool(re.match(r"void [^(]*<", signature))


def _records() -> build_cache.Part:
    flags = ("-std=c++20", "-O2", "-g0", "-w", "-fno-gnu-unique")
    return _own_part("own_records", ["records.cpp"], flags, (sources.EMULATOR,))


def _torch_values() -> build_cache.Part:
    files = ["torch_memory.cpp", "torch_values.cpp"]
    return _own_part("own_torch_values", files, _torch_flags(), _torch_folders())


def _torch_header() -> build_cache.Part:
    files = ["torch_file.h"]
    return _own_part("own_torch_header", files, _HOST_FLAGS, _torch_folders())


def _own_part(
    name: str, files: Sequence[str], flags: tuple[str, ...], folders: tuple[Path, ...]
) -> build_cache.Part:
    return build_cache.Part(
        name=name,
        source="".join(f'#include "own/{each}"\n' for each in files),
        flags=flags,
        include_folders=folders,
        files=(*(_OWN / each for each in files), *_headers(sources.EMULATOR)),
    )


def _torch_flags() -> tuple[str, ...]:
    """Those of host code with torch, whose headers were compiled before."""
    return (*_HOST_FLAGS, "-include", str(build_cache.header(_torch_header())))


def _torch_folders() -> tuple[Path, ...]:
    return (_TORCH_HEADERS, sources.EMULATOR, *map(Path, include_paths()))


def _headers(folder: Path) -> list[Path]:
    return sorted([*folder.rglob("*.h"), *folder.rglob("*.cuh")])


def _written(source: CudaSource, texts: Mapping[Path, str]) -> tuple[Path, str]:
    """The folder that holds the rewritten files, and the name of the main one."""
    names = cuda_rewriting.file_names(source)
    files = {names[path]: text for path, text in texts.items()}
    folder = build_cache.text_folder("own_files", files)
    return folder, names[source.path]


# ---- Compilers -----------------------------------------------------------------------


def _compile_header() -> None:
    """Compiles the headers of torch, once for a version of it.

    A file compiles in a third of the time with them.

    Raises:
        UnavailableError: There is no compiler, or the cache cannot be used.
    """
    try:
        build_cache.precompile(_torch_header())
    except BuildError as error:
        raise UnavailableError(str(error)) from error


def _compile_in_turn(parts: Iterable[build_cache.Part]) -> None:
    for each in parts:
        build_cache.object_file(each)


def _compiled(source: CudaSource, part: build_cache.Part) -> Path:
    try:
        return build_cache.object_file(part, quietly=True)
    except BuildError as error:
        raise _failure(source, error) from error


def _failure(source: CudaSource, error: BuildError) -> CompareError:
    log = str(error)
    if not _ERROR.search(log):  # there is no compiler, or the cache cannot be used
        return UnavailableError(log)
    what = "g++ cannot compile this for the emulator"
    return BuildFailedError(first_error(source, log, what))


def first_error(source: CudaSource, log: str, what: str) -> str:
    """The first error of a compiler's, in one sentence with the user's line.

    Args:
        source: What was compiled.
        log: What the compiler has printed.
        what: Is said before the compiler's own words.

    Returns:
        Such as "mine.cu:7: nvcc cannot compile this: a name is undefined". Of an error
        in a header the line is that of the user's which led there.
    """
    paths = "|".join(re.escape(str(path)) for path in source.files)
    place = re.compile(rf"({paths})[:(](\d+)")
    lines = log.splitlines()
    errors = [i for i, line in enumerate(lines) if _ERROR.search(line)]
    if not errors:
        return log[:_LONGEST_LOG]
    # An error of the user's own line is told before one that follows from it elsewhere.
    first = next((i for i in errors if place.match(lines[i])), errors[0])
    around = [lines[first], *reversed(lines[:first]), *lines[first:]]
    found = next(filter(None, map(place.search, around)), None)
    where = f"{Path(found[1]).name}:{found[2]}" if found else source.path.name
    message = _ERROR.split(lines[first], maxsplit=1)[-1].strip()
    sentence = f"{where}: {what}: {message}".replace(f"{UNNAMED}::", "")
    return printable(sentence[:_LONGEST_ERROR])


def _kernels_wanted(source: CudaSource, host_object: Path) -> dict[str, str]:
    """By symbol the kernels that the host part refers to, demangled."""
    symbols, names = (
        subprocess.run(
            ["nm", "--undefined-only", "--format=just-symbols", *options, host_object],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
        for options in ([], ["--demangle"])
    )
    kernels = {each.name for each in source.functions if each.kind == "kernel"}
    return {
        symbol: name
        for symbol, name in zip(symbols, names, strict=True)
        if _plain_name(name) in kernels
    }


def _kernels_expected(key: str) -> list[str] | None:
    """The kernels, demangled, that were wanted the last time; None: nobody knows."""
    stored = cache.read(key, (_WANTED,))
    if stored is None:
        return None
    expected: list[str] = json.loads(stored[_WANTED])
    return expected


def _plain_name(signature: str) -> str:
    """The last name of a demangled function: `f` of `void ns::f<float>(float*)`."""
    head = re.sub(r"<.*", "", signature.partition("(")[0])
    return head.rpartition("::")[2].split()[-1] if head.split() else ""
