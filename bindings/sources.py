"""Source files, compiler flags and fingerprint of the native modules.

setup.py imports this module where torch may be absent, so it imports nothing but the
standard library.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Literal

# `_cpu` runs the kernels in the emulator, `_checked` does so under its checker, `_cuda`
# on a GPU.
ModuleName = Literal["_cpu", "_checked", "_cuda"]

ROOT = Path(__file__).resolve().parents[1]
CSRC = ROOT / "csrc"
EMULATOR = CSRC / "emulator"
NATIVE = ROOT / "bindings/native"

# -fno-gnu-unique: several modules with the same symbols live in one process, and a
# "unique" symbol of one would silently serve the others.
CXX_FLAGS = (
    "-std=c++20",
    "-O2",
    "-g0",  # Python's own flags ask for debug symbols, which double the compile time
    "-Wall",
    "-Wextra",
    "-Wno-restrict",  # g++ 12 warns about its own std::string (GCC bug 105651)
    "-Wno-unknown-pragmas",  # #pragma unroll in the emulated kernels
    "-Wno-psabi",  # g++ before 4.6 passed structures such as tensor maps differently
    "-fno-gnu-unique",
)
# For kernels in the emulator, of which there are well over a thousand: a third of the
# time of -O2 to compile, for a third more to run. Its runtime keeps -O2.
EMULATED_FLAGS = (*CXX_FLAGS, "-Og")
# For kernels under the checker, instrumented to call it for every access, index and
# vector. The libraries of g++'s sanitizers are not linked: the checker replaces them.
CHECKED_FLAGS = (
    "-std=c++20",
    "-O1",  # keeps every access near its line, and inlined functions inlined
    "-g",
    "-gdwarf-4",  # addr2line of older systems misreads version 5
    "-fsanitize=thread",
    "-fsanitize=bounds,alignment",
    "--param=tsan-distinguish-volatile=1",
    "-fno-builtin-memcpy",  # keeps them calls, which the linker leads to the checker
    "-fno-builtin-memmove",
    "-fno-builtin-memset",
    "-U_FORTIFY_SOURCE",  # Ubuntu's g++ sets it, which makes them builtins again
    "-Wall",
    "-Wextra",
    "-Wno-unknown-pragmas",
    "-Wno-tsan",  # about fences, which the checker knows
    "-Wno-psabi",
    "-fno-gnu-unique",
)
CHECKED_LINK_FLAGS = tuple(
    f"-Wl,--wrap={name}" for name in ("memcpy", "memmove", "memset")
)
NVCC_FLAGS = (
    "-std=c++20",
    "-O3",
    "-lineinfo",
    "-Xcompiler=-Wall,-Wextra,-fno-gnu-unique",
)


def kernel_source(op: str) -> Path:
    """Returns the CUDA file with an op's entry points."""
    return CSRC / op / f"{op}.cu"


def kernel_sources() -> list[Path]:
    """Returns the ops' CUDA files, each of which includes its folder's kernels."""
    return sorted(path for path in CSRC.glob("*/*.cu") if path.stem == path.parent.name)


def emulator_sources() -> list[Path]:
    """Returns the files of the emulator's runtime."""
    return sorted(EMULATOR.glob("runtime/*.cpp"))


def checker_sources() -> list[Path]:
    """Returns the files of the emulator's checker."""
    return sorted(EMULATOR.glob("checker/*.cpp"))


# A launcher begins with these two parameters, and is in no namespace.
_LAUNCHER = re.compile(
    r"cudaError_t\s+(?P<name>\w+)\(\s*"
    r"(?P<parameters>const Launcher& \w+,\s*DType \w+,[^()]*)\)\s*\{"
)
_NAMESPACE = re.compile(r"^namespace\b.*?^\}  // namespace", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def bindings_of(op: str) -> str:
    """Returns C++ that binds the launchers of an op's .cu, as it is on disk, to Python.

    They are declared once more, so that their compiler sees what they take, and their
    parameters are named, which no compiler tells. entry.cpp comes before this.
    """
    code = _COMMENT.sub("", _NAMESPACE.sub("", kernel_source(op).read_text()))
    lines = []
    for launcher in _LAUNCHER.finditer(code):
        name, parameters = launcher["name"], " ".join(launcher["parameters"].split())
        names = re.findall(r"(\w+)(?:,|$)", parameters)[2:]
        quoted = ", ".join(f'"{each}"' for each in names)
        lines += [
            f"cudaError_t {name}({parameters});",
            "static const native::Binding "
            f'{name}_binding("{name}", &{name}, {{{quoted}}});',
        ]
    return "".join(f"{line}\n" for line in lines)


# Parts of the emulator that no prebuilt module has: those of checking builds, and of
# users' own files.
_OF_OTHERS = ("checker", "own", "torch_headers")


def include_folders(module: ModuleName) -> list[Path]:
    """Returns where a module's sources look for headers, in this order."""
    # The emulator stands in for CUDA's own headers, so it comes first.
    return [CSRC, NATIVE] if module == "_cuda" else [EMULATOR, CSRC, NATIVE]


def source_hash(module: ModuleName) -> str:
    """Returns the fingerprint of everything a module is compiled from."""
    digest = hashlib.sha256(repr((EMULATED_FLAGS, NVCC_FLAGS)).encode())
    digest.update(_all_bindings().encode())
    for path in _all_files(module):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def _all_bindings() -> str:
    ops = "".join(bindings_of(path.stem) for path in kernel_sources())
    return f'#include "entry.cpp"\n{ops}'


def _all_files(module: ModuleName) -> list[Path]:
    suffixes = {".cu", ".cuh", ".h", ".cpp"}
    files = [*CSRC.rglob("*"), *NATIVE.rglob("*")]
    return sorted(
        path
        for path in files
        if path.suffix in suffixes
        and not (module == "_cuda" and path.is_relative_to(EMULATOR))
        and not any(path.is_relative_to(EMULATOR / each) for each in _OF_OTHERS)
    )


def write_sources(module: ModuleName, folder: Path) -> list[Path]:
    """Writes a module's small generated files and returns all its source files.

    The bindings are one such file, and the emulator is compiled as one, because reading
    the standard library's headers takes far longer than compiling the code below them.
    For the emulator every .cu is wrapped in a .cpp, because compilers and ninja rules
    take a file's language from its name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _touch_edited(module, folder / "contents.json")
    fingerprint = f'extern const char SOURCE_HASH[] = "{source_hash(module)}";\n'
    sources = [
        NATIVE / "module.cpp",
        _write_if_changed(folder / "bindings.cpp", _all_bindings()),
        _write_if_changed(folder / "source_hash.cpp", fingerprint),
    ]
    if module == "_cuda":
        return sources + kernel_sources()
    runtime = '#pragma GCC optimize("O2")\n' + "".join(
        f'#include "runtime/{path.name}"\n' for path in emulator_sources()
    )
    sources.append(_write_if_changed(folder / "emulator.cpp", runtime))
    for path in kernel_sources():
        wrapper = folder / f"{path.name}.cpp"
        sources.append(
            _write_if_changed(wrapper, f'#include "{path.relative_to(CSRC)}"\n')
        )
    return sources


def _touch_edited(module: ModuleName, record: Path) -> None:
    """Touches each file that is not as the last build saw it.

    ninja compares times alone, so it misses a file that was restored with its old time.
    """
    contents = {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in _all_files(module)
    }
    try:
        last_contents = json.loads(record.read_text())
    except (FileNotFoundError, ValueError):
        last_contents = contents  # the first build, or the last was killed midway
    for name, content in contents.items():
        if last_contents.get(name) != content:
            (ROOT / name).touch()
    record.write_text(json.dumps(contents))


def _write_if_changed(path: Path, text: str) -> Path:
    # An untouched file keeps its time, so ninja does not compile it again.
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path
