"""A cache on disk for the modules that torch.utils.cpp_extension.load_inline builds.

load_inline alone keeps a module under its name, whatever it was built from: two sources
of one name overwrite each other, and a killed build blocks all later ones. Here a
module's name holds a fingerprint of everything it is built from. Each module is built
in its own folder and moved into the cache in one step when it is complete, so every
file in the cache is what its name says. A file ends in a digest of itself, because a
module that lost data, say when the machine went down, would crash the process that
loads it.

Code that several modules share is compiled once, to an object file in the same cache.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pybind11
import torch
from filelock import FileLock, Timeout

from bindings import child_process, toolchain
from bindings.disk_cache import folder_of, forget_unused
from bindings.errors import BuildError
from bindings.sources import ROOT

# A user who waits longer than this is told the reason.
PATIENCE_S = 2.0

# Environment variables that change the compilers' output.
COMPILER_VARIABLES = (
    "CC",
    "CXX",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "NVCC_APPEND_FLAGS",
    "NVCC_PREPEND_FLAGS",
    "PYTORCH_NVCC",
)

# Some compilers are set up to link libstdc++ statically. What such a copy exports is
# merged with PyTorch's libstdc++, by a loader that knows "unique" symbols: the numbers
# of the parts of a locale become those of PyTorch's, the tables that they count in stay
# apart, and the first number that is written to a stream is lost, or the process is.
_ARCHIVES_STAY_INSIDE = "-Wl,--exclude-libs,ALL"


@dataclass(frozen=True)
class Part:
    """The source of an object file that modules are linked with.

    Attributes:
        name: The beginning of the file's name.
        source: Text for the C++ compiler.
        flags: Flags for the C++ compiler.
        include_folders: Folders that the text's #include lines search, in this order.
        files: All files that the text may include from there.
        names_no_file: Whether the object file is without the names of its sources, such
            as __FILE__ and debug symbols leave in it, so that all checkouts can use it.
        is_for_python: Whether the text includes the headers of Python and pybind11.
    """

    name: str
    source: str
    flags: tuple[str, ...]
    include_folders: tuple[Path, ...]
    files: tuple[Path, ...]
    names_no_file: bool = False
    is_for_python: bool = False


@dataclass(frozen=True)
class Recipe:
    """The sources and flags of a module.

    Attributes:
        name: The beginning of the module's name.
        cpp_source: Text for the C++ compiler, which has to define the Python module
            TORCH_EXTENSION_NAME, or its entry, where a part defines the rest. The C
            string SOURCE_HASH is defined ahead of it.
        cuda_source: Text for nvcc; may be empty.
        cxx_flags: Flags for the C++ compiler.
        nvcc_flags: Flags for nvcc, -gencode included.
        include_folders: Folders that the texts' #include lines search, in this order.
        files: All files that the texts may include from there.
        cuda_home: The CUDA toolkit, if there is a cuda_source.
        parts: Parts that the module is linked with.
        link_flags: Flags for the linker.
    """

    name: str
    cpp_source: str
    cuda_source: str
    cxx_flags: tuple[str, ...]
    nvcc_flags: tuple[str, ...]
    include_folders: tuple[Path, ...]
    files: tuple[Path, ...]
    cuda_home: Path | None
    parts: tuple[Part, ...] = ()
    link_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Library:
    """The parts of a shared library that is no Python module.

    Attributes:
        name: The beginning of the file's name.
        parts: What it is linked from, in this order.
        link_flags: Flags for the linker.
    """

    name: str
    parts: tuple[Part, ...]
    link_flags: tuple[str, ...]


@dataclass(frozen=True)
class CudaLibrary:
    """What nvcc makes a shared library of that is no Python module.

    Attributes:
        name: The beginning of the file's name.
        texts: For nvcc, which compiles each on its own.
        flags: Flags for nvcc, those of the linker included.
        include_folders: Folders that the texts' #include lines search, in this order.
        files: All files that the texts may include from there.
        cuda_home: The CUDA toolkit.
    """

    name: str
    texts: tuple[str, ...]
    flags: tuple[str, ...]
    include_folders: tuple[Path, ...]
    files: tuple[Path, ...]
    cuda_home: Path


def load(recipe: Recipe) -> ModuleType:
    """Returns the module of a recipe, built unless it is in the cache.

    Raises:
        BuildError: A tool is missing, the cache cannot be used, the sources do not
            compile, or the module does not load.
    """
    path = _kept(recipe, ".so", functools.partial(_compile_module, recipe))
    return _import(path.stem, path)


def object_file(part: Part, *, quietly: bool = False) -> Path:
    """Returns the object file of a part, compiled unless it is in the cache.

    Args:
        part: The part.
        quietly: Says nothing while it compiles, for a caller that says it itself.

    Raises:
        BuildError: There is no compiler, the cache cannot be used, or the source does
            not compile.
    """
    return _kept(part, ".o", functools.partial(_compile_part, part, quietly))


def header(part: Part) -> Path:
    """Returns the file to name in g++'s -include, which holds the part's source.

    Raises:
        BuildError: The cache cannot be used.
    """
    return _kept(part, ".h", functools.partial(_write_header, part), is_sealed=False)


def precompile(part: Part) -> None:
    """Compiles a part's header, unless the cache has that: g++ takes it from then on.

    Raises:
        BuildError: As `object_file`.
    """
    # Over a hundred megabytes, of which g++ itself sees whether it wrote them.
    compile_ = functools.partial(_compile_header, part)
    _kept(part, ".h.gch", compile_, is_sealed=False)


def shared_library(made: Library | CudaLibrary) -> Path:
    """Returns a shared library, linked or compiled unless it is in the cache.

    Raises:
        BuildError: As `object_file`.
    """
    if isinstance(made, CudaLibrary):
        return _kept(made, ".so", functools.partial(_compile_cuda, made))
    return _kept(made, ".so", functools.partial(_link, made))


def text_folder(name: str, texts: Mapping[str, str]) -> Path:
    """Returns a folder in the cache that holds these texts, by the names of its files.

    Raises:
        BuildError: The cache cannot be used.
    """
    digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()
    folder = cache_folder() / f"{name}_{digest[:20]}"
    try:
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                complete = Path(temporary, name)
                complete.mkdir()
                for file, text in texts.items():
                    Path(complete, file).write_text(text, encoding="utf-8")
                with suppress(OSError):  # another process was faster
                    complete.rename(folder)
    except OSError as error:
        raise BuildError(_unusable(folder.parent, str(error))) from error
    return folder


# Takes the fingerprint and the file to write.
_Compile = Callable[[str, Path], None]
_Made = Recipe | Part | Library | CudaLibrary


def _is_intact(path: Path) -> bool:
    """Whether a file exists and is unchanged since it was sealed."""
    if not path.exists():
        return False
    content = path.read_bytes()
    n_bytes = hashlib.sha256().digest_size
    return hashlib.sha256(content[:-n_bytes]).digest() == content[-n_bytes:]


def _kept(
    made: _Made,
    suffix: str,
    compile_: _Compile,
    *,
    is_sealed: bool = True,
) -> Path:
    """Returns the file in the cache, made unless it is there."""
    folder = cache_folder()
    is_intact: Callable[[Path], bool] = _is_intact if is_sealed else Path.exists
    while True:
        fingerprint = _fingerprint(made)
        name = f"{made.name}_{fingerprint[:20]}"
        path = folder / f"{name}{suffix}"
        if not is_intact(path):
            with _lock(folder / f"{name}.lock", made.name):
                if not is_intact(path):
                    _build(made, fingerprint, path, compile_, is_sealed)
        # If it is not, the sources were edited while they were compiled: try again.
        if is_intact(path):
            return path


def cache_folder() -> Path:
    """Returns the folder of the built modules, which no other user can write to.

    Raises:
        BuildError: The folder cannot be made, or is not safe to load code from.
    """
    folder = folder_of("inline")
    if "$" in str(folder):
        raise BuildError(_unusable(folder, "ninja takes a $ for a variable"))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise BuildError(_unusable(folder, str(error))) from error
    if status.st_uid != os.geteuid():
        raise BuildError(_unusable(folder, f"it belongs to user {status.st_uid}"))
    if status.st_mode & 0o022:
        raise BuildError(_unusable(folder, "others can write to it (chmod go-w)"))
    return folder


def _unusable(folder: Path, reason: str) -> str:
    return (
        f"the cache folder {folder} cannot be used: {reason}; "
        "XDG_CACHE_HOME can name another place"
    )


def _fingerprint(made: _Made) -> str:
    facts: dict[str, object] = {
        "made": vars(made),
        "c++": _version_of(cxx()),
        # Its headers and libraries are no files of ours.
        "torch": [torch.__version__, torch.version.cuda],
        "environment": [os.environ.get(variable) for variable in COMPILER_VARIABLES],
    }
    if not isinstance(made, Library):
        facts["files"] = [_digest(path) for path in made.files]
    if isinstance(made, Recipe | Library):
        facts["parts"] = [_fingerprint(part) for part in made.parts]
        facts["linked"] = _ARCHIVES_STAY_INSIDE
    if isinstance(made, Recipe) or (isinstance(made, Part) and made.is_for_python):
        facts |= {
            "python": sysconfig.get_config_var("SOABI"),
            "pybind11": pybind11.__version__,
        }
    if isinstance(made, Recipe | CudaLibrary):
        home = made.cuda_home
        facts["nvcc"] = home and _version_of((f"{home}/bin/nvcc",))
    text = json.dumps(facts, sort_keys=True, default=_fields)
    if isinstance(made, Part) and made.names_no_file:
        text = text.replace(str(ROOT), "")
    return hashlib.sha256(text.encode()).hexdigest()


def _fields(fact: object) -> object:
    """What stands for a part, or for a path, in JSON."""
    return vars(fact) if isinstance(fact, Part) else str(fact)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cxx() -> tuple[str, ...]:
    """Returns the command of the C++ compiler that load_inline calls.

    Raises:
        BuildError: There is none.
    """
    text = os.environ.get("CXX", "c++")
    command = (text,) if shutil.which(text) else tuple(shlex.split(text))
    if not command or not shutil.which(command[0]):
        raise BuildError(
            f"no C++ compiler: {text!r} is not found; install g++ "
            "(apt-get install g++), or name a compiler in the variable CXX"
        )
    return command


@functools.cache
def _version_of(command: tuple[str, ...]) -> str:
    return subprocess.check_output([*command, "--version"], text=True)


def _lock(path: Path, name: str) -> AbstractContextManager[object]:
    """A lock that the system releases when its process ends, however it ends."""
    lock = FileLock(path)
    try:
        return lock.acquire(timeout=PATIENCE_S)
    except Timeout:
        _tell(f"waiting for another process that compiles {name} (it holds {path})")
        return lock.acquire()
    except OSError as error:
        raise BuildError(_unusable(path.parent, str(error))) from error


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _build(
    made: _Made, fingerprint: str, path: Path, compile_: _Compile, is_sealed: bool
) -> None:
    """Compiles into path, unless the sources are edited meanwhile."""
    for leftover in path.parent.glob(f"{path.stem}.*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)  # of a killed build
    try:
        with tempfile.TemporaryDirectory(
            prefix=f"{path.stem}.", suffix=".tmp", dir=path.parent
        ) as temporary:
            compiled = Path(temporary, path.name)
            compile_(fingerprint, compiled)
            if _fingerprint(made) == fingerprint:
                if is_sealed:
                    _seal(compiled)
                os.replace(compiled, path)
    except OSError as error:
        raise BuildError(_unusable(path.parent, str(error))) from error
    forget_unused()


def _seal(path: Path) -> None:
    """Appends a digest to a file, where neither loader nor linker looks."""
    digest = hashlib.sha256(path.read_bytes()).digest()
    with path.open("ab") as file:
        file.write(digest)


def _compile_part(part: Part, quietly: bool, _fingerprint: str, path: Path) -> None:
    command = [*_command_of(part), "-x", "c++", "-c", "-", "-o", str(path)]
    _run(command, part.source, part.name, path.parent.parent, quietly=quietly)


def _write_header(part: Part, _fingerprint: str, path: Path) -> None:
    path.write_text(part.source)


def _compile_header(part: Part, _fingerprint: str, path: Path) -> None:
    header = path.with_name("header.h")  # g++ takes none from its standard input
    header.write_text(part.source)
    # Without -c a compiler that is told to link something, even libstdc++, links.
    command = [*_command_of(part), "-x", "c++-header", "-c", str(header)]
    command += ["-o", str(path)]
    _run(command, "", part.name, path.parent.parent)


def _command_of(part: Part) -> list[str]:
    includes = [f"-I{folder}" for folder in part.include_folders]
    return [*cxx(), *part.flags, "-fPIC", *includes]


def _link(made: Library, _fingerprint: str, path: Path) -> None:
    objects = [str(object_file(part)) for part in made.parts]
    flags = [_ARCHIVES_STAY_INSIDE, *made.link_flags]
    command = [*cxx(), "-shared", *objects, *flags, "-o", str(path)]
    _run(command, "", made.name, path.parent.parent)


def _compile_cuda(made: CudaLibrary, _fingerprint: str, path: Path) -> None:
    # nvcc takes no text from its standard input.
    sources = [path.with_name(f"source_{i}.cu") for i in range(len(made.texts))]
    for source, text in zip(sources, made.texts, strict=True):
        source.write_text(text)
    command = [f"{made.cuda_home}/bin/nvcc", "-shared", "-Xcompiler=-fPIC"]
    command += [*map(str, sources), f"--threads={len(sources)}"]
    command += [f"-I{folder}" for folder in made.include_folders]
    command += [*made.flags, "-o", str(path)]
    _run(command, "", made.name, path.parent.parent)


def _compile_module(recipe: Recipe, fingerprint: str, path: Path) -> None:
    """Runs load_inline in its own process.

    cpp_extension reads the environment when it is imported; load_inline changes it, and
    loads the module that it has built.
    """
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        raise BuildError(
            f"Python's own headers are missing ({header}): install them "
            "(apt-get install python3-dev)"
        )
    folder = path.parent
    source_hash = f'extern const char SOURCE_HASH[] = "{fingerprint}";'
    arguments = {
        "name": path.stem,
        "cpp_sources": [source_hash, recipe.cpp_source],
        "cuda_sources": [recipe.cuda_source] if recipe.cuda_source else None,
        "extra_cflags": recipe.cxx_flags,
        "extra_cuda_cflags": recipe.nvcc_flags,
        "extra_ldflags": _link_flags(recipe, folder),
        "extra_include_paths": [str(each) for each in recipe.include_folders],
        "build_directory": str(folder),
    }
    variables = {"CUDA_HOME": str(recipe.cuda_home)} if recipe.cuda_home else {}
    command = child_process.command("bindings.inline_builder")
    environment = child_process.environment(variables)
    _run(command, json.dumps(arguments), recipe.name, folder.parent, environment)


def _run(
    command: list[str],
    text: str,
    name: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    quietly: bool = False,
) -> None:
    """Runs a command that compiles a text; messages state its name and folder."""
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that it can be killed with all its compilers
    )
    try:
        output = (
            process.communicate(text)[0]
            if quietly
            else _output_of(process, text, name, folder)
        )
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode != 0:
        raise BuildError(f"{name} cannot be built:\n{_without_commands(output)}")


def _link_flags(recipe: Recipe, folder: Path) -> list[str]:
    # torch puts its own libraries on the linker's command line. Nothing here needs
    # them, but they export parts of libstdc++, and would be linked if they came first.
    flags = [_ARCHIVES_STAY_INSIDE, "-Wl,--as-needed", "-pthread", "-lstdc++"]
    flags += recipe.link_flags
    flags += [shlex.quote(str(object_file(part))) for part in recipe.parts]
    if recipe.cuda_home:
        # torch asks the linker for "cudart". A toolkit installed by pip has no file of
        # that name, so this script leads to the static library, as in the prebuilt
        # module.
        script = "INPUT(-lcudart_static -lrt -ldl -lpthread)\n"
        Path(folder, "libcudart.so").write_text(script)
        runtime_folder = toolchain.cuda_runtime_folder(recipe.cuda_home)
        flags += [f"-L{shlex.quote(str(f))}" for f in (folder, runtime_folder)]
    return flags


def _output_of(
    process: subprocess.Popen[str], text: str, name: str, folder: Path
) -> str:
    try:
        return process.communicate(text, timeout=PATIENCE_S)[0]
    except subprocess.TimeoutExpired:
        _tell(f"compiling {name}, to be kept in {folder}")
        return process.communicate()[0]


def _without_commands(output: str) -> str:
    """The compilers' output without the command lines that ninja prints before it."""
    output = re.sub(r"(?m)^Error building extension '\w+': ", "", output)
    commands = re.findall(r"^\[\d+/\d+\] (.*)$", output, re.MULTILINE)
    noise = re.compile(r"\[\d+/\d+\] |FAILED: |ninja: build stopped")
    lines = [
        line
        for line in output.splitlines()
        if line not in commands and not noise.match(line)
    ]
    return "\n".join(lines).strip()


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise BuildError(
            f"{path} was built but cannot be loaded ({error}); "
            "delete it to have it built again"
        ) from error
    return module
