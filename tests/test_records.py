"""Records: kept, found again, and shown where nothing can be measured."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from benches import NOT_INSTALLED, TOO_LONG, make_bench, make_case
from rich.console import Console

from bindings.sources import ROOT
from compare import repository
from compare.cli import main
from compare.errors import UnavailableError, UsageError
from compare.judge.cases import Case
from compare.judge.parity import Skipped
from compare.records import check, drawn, fusions, rung_times, store
from compare.records.source_hash import KEY, SIDES, hashes
from compare.report import plots, readme, recorded, recording
from compare.timing import benchmark, ceiling, gpu_state
from compare.timing.times import Bench, CaseTimes, to_json
from compare.timing.unfinished import Unfinished

RTX = "NVIDIA GeForce RTX 4090"


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    bench = make_bench()
    file = store.write(bench, tmp_path)
    assert file == tmp_path / "nvidia-h200/softmax.json"
    assert store.read(file, Bench) == bench
    assert file.read_text().endswith("}\n")


@pytest.mark.parametrize(
    ("gpu", "folder"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        (RTX, "nvidia-geforce-rtx-4090"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("../../x (beta)", "x-beta"),
    ],
)
def test_folder_of_a_gpu(gpu: str, folder: str, tmp_path: Path) -> None:
    assert store.folder_of(gpu, tmp_path) == tmp_path / folder


def test_a_later_run_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    store.write(make_bench(), tmp_path)
    later = make_bench(date="2027-01-02T00:00:00+00:00")
    file = store.write(later, tmp_path)
    assert store.read_all(Bench, tmp_path) == [later]
    assert list(file.parent.iterdir()) == [file]


def test_a_run_that_cannot_be_written_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = make_bench()
    file = store.write(earlier, tmp_path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    later = make_bench(date="2027-01-02T00:00:00+00:00")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UnavailableError) as caught:
        store.write(later, tmp_path)
    assert str(caught.value) == f"{file} cannot be written (No space left on device)"
    assert store.read(file, Bench) == earlier
    assert list(file.parent.iterdir()) == [file]


def _without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.pop(key)


def _environment(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(
        environment={
            name: value
            for name, value in (document["environment"] | changes).items()
            if value is not None
        }
    )


def _unknown_implementation(document: dict[str, Any]) -> None:
    timing = document["sweep"][0]["timing"]
    timing["abacus"] = timing.pop("cuda")


def _in_timing(**changes: object) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["cases"][0]["timing"]["cuda"].update(changes)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (_without("schema_version"), "expected schema_version 1, got None"),
        (lambda each: each.update(schema_version=2), "schema_version 1, got 2"),
        (_without("sweep"), "it lacks 'sweep'"),
        (lambda each: each.update(cases=3), "not iterable"),
        (lambda each: each["cases"][0]["case"].update(dtype="f7"), "no attribute 'f7'"),
        (_environment(gpus=None), "its environment lacks 'gpus'"),
        (_environment(date=None), "its environment lacks 'date'"),
        (_environment(gpus=[]), "it names no GPU"),
        (lambda each: each.update(environment=[]), "no attribute 'items'"),
        (lambda each: each.update(notes=None), "no attribute 'items'"),
        (_in_timing(median_us="fast"), "'fast' stands where a number should be"),
        (_in_timing(median_us=True), "True stands where a number should be"),
        (_in_timing(method="sundial"), "'sundial' is none of"),
        (_unknown_implementation, "it times 'abacus', which is unknown here"),
    ],
)
def test_a_file_of_something_else_is_refused(
    edit: Callable[[dict[str, Any]], None], says: str, tmp_path: Path
) -> None:
    document = json.loads(json.dumps(to_json(make_bench())))
    edit(document)
    file = tmp_path / "softmax.json"
    file.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=says) as caught:
        store.read(file, Bench)
    assert str(caught.value).startswith(f"{file} holds no bench as compare")


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "Expecting value"), (b"[1]", "no attribute"), (b"\xff\xfe{", "decode")],
)
def test_a_file_that_is_no_json_is_refused(
    content: bytes, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=says) as caught:
        store.read(file, Bench)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"x\.json cannot be read \(No such file"):
        store.read(tmp_path / "x.json", Bench)


def test_records_come_by_gpu_and_op(tmp_path: Path) -> None:
    for op in ("softmax", "add"):
        for gpu in ("NVIDIA H200", RTX):
            store.write(make_bench(op, gpu), tmp_path)
    (tmp_path / "of-an-older-format.json").write_text("{}")
    found = [(store.gpu(each), each.op) for each in store.read_all(Bench, tmp_path)]
    h200 = "NVIDIA H200"
    assert found == [(RTX, "add"), (RTX, "softmax"), (h200, "add"), (h200, "softmax")]


def test_without_a_folder_nothing_is_recorded(tmp_path: Path) -> None:
    nowhere = tmp_path / "records"
    assert store.read_all(Bench, nowhere) == []
    assert store.find("softmax", Bench, nowhere) is None
    with pytest.raises(UsageError, match="nothing is recorded yet"):
        store.choose([], None, nowhere)


@pytest.mark.parametrize("newest", ["NVIDIA H200", RTX])
def test_the_newest_record_is_found(newest: str, tmp_path: Path) -> None:
    for gpu in ("NVIDIA H200", RTX):
        day = "2026-11-21" if gpu == newest else "2026-11-20"
        store.write(make_bench(gpu=gpu, date=f"{day}T08:00:00+00:00"), tmp_path)
    found = store.find("softmax", Bench, tmp_path)
    assert found is not None
    assert store.gpu(found) == newest
    assert store.find("add", Bench, tmp_path) is None


def test_the_record_of_the_gpu_with_most_is_found(tmp_path: Path) -> None:
    for gpu, ops in (("NVIDIA H200", ("softmax", "add")), (RTX, ("softmax",))):
        day = "2026-11-21" if gpu == RTX else "2026-11-20"
        for op in ops:
            bench = make_bench(op, gpu=gpu, date=f"{day}T08:00:00+00:00")
            store.write(bench, tmp_path)
    found = store.find("softmax", Bench, tmp_path)
    assert found is not None
    assert store.gpu(found) == "NVIDIA H200"


def test_choosing_what_to_draw(tmp_path: Path) -> None:
    for op in ("softmax", "add"):
        file = store.write(make_bench(op), tmp_path)

    def choose(ops: list[str], source: Path | None = None) -> list[str]:
        found = store.choose(ops, None if source is None else str(source), tmp_path)
        return [each.op for each in found]

    assert choose([]) == ["add", "softmax"]
    store.write(replace(make_bench("gelu"), sweep=()), tmp_path)
    assert choose([]) == ["add", "softmax"]  # where there is nothing to draw
    assert choose(["gelu"]) == ["gelu"]  # which says so
    store.file_of(make_bench("gelu"), tmp_path).unlink()
    assert choose(["softmax", "softmax"]) == ["softmax"]
    assert choose([], file) == choose(["add"], file) == ["add"]
    with pytest.raises(UsageError, match="is of add, not of softmax"):
        choose(["softmax"], file)
    with pytest.raises(UsageError, match="no record of gelu, only of add, softmax"):
        choose(["add", "gelu"])


@pytest.mark.parametrize(
    ("op_name", "params", "unusual"),
    [
        ("softmax", {"dim": -1}, ()),
        ("softmax", {}, ()),
        ("softmax", {"scale": None, "dim": 0}, ("dim=0", "scale=None")),
        ("gelu", {"approximate": "tanh"}, ("approximate=tanh",)),
        ("of_long_ago", {"dim": -1}, ("dim=-1",)),
    ],
)
def test_unusual_params(
    op_name: str, params: dict[str, Any], unusual: tuple[str, ...]
) -> None:
    assert store.unusual_params(op_name, params) == unusual


def _case(dtype_name: str, **params: Any) -> Case:
    return Case((1,), getattr(torch, dtype_name), params=params)


def _shown(bench: Bench, dtype_name: str, width: int = 100, **params: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        recorded.show(bench, _case(dtype_name, **params), console)
    return capture.get().splitlines()


@pytest.fixture
def mixed_bench() -> Bench:
    """Cases of two dtypes and two dims; ours is missing from one."""
    return replace(
        make_bench(),
        cases=(
            make_case((16384, 4096), params={"dim": -1}),
            make_case((8192, 32768), params={"dim": -1}, skipped={"cuda": TOO_LONG}),
            make_case((4096, 131072), params={"dim": 0}),
            make_case((32768, 1024), torch.bfloat16),
        ),
    )


def test_recorded_times_are_shown_with_their_origin(mixed_bench: Bench) -> None:
    lines = _shown(mixed_bench, "float32", width=130, dim=-1)
    assert lines[0] == (
        "Recorded on an NVIDIA H200, 2026-11-20 "
        "(torch 2.11.0+cu130, triton 3.6.0), not measured here"
    )
    rows = [line.split() for line in lines[3:]]
    large, larger = (each.timings for each in mixed_bench.cases[:2])
    names = ("cuda", "triton", "torch", "torch.compile", "unfused", "liger")
    assert rows == [
        ["16384x4096", *map(_median(large), names), "96.0", "/", "95.0"],
        ["8192x32768", "-", *map(_median(larger), names[1:]), "-", "/", "95.0"],
    ]


def _of_older_code(bench: Bench, *sides: str) -> Bench:
    sources = hashes(bench.op) | dict.fromkeys(sides, "0")
    return replace(bench, environment={**bench.environment, KEY: sources})


@pytest.mark.parametrize(
    ("sides", "says"),
    [
        ((), "not measured here"),
        (("cuda",), "of older CUDA code"),
        (("triton",), "of older Triton code"),
        (SIDES, "of older code"),
    ],
)
def test_what_is_of_older_code_is_shown_as_such(
    sides: tuple[str, ...], says: str, mixed_bench: Bench
) -> None:
    bench = _of_older_code(mixed_bench, *sides)
    assert _shown(bench, "float32", width=130, dim=-1)[0] == (
        "Recorded on an NVIDIA H200, 2026-11-20 "
        f"(torch 2.11.0+cu130, triton 3.6.0), {says}"
    )
    document = recorded.to_json(bench, _case("float32"))
    assert document["of_older_code"] == list(sides)


def _median(timings: Any) -> Callable[[str], str]:
    return lambda name: f"{timings[name].median_us:,.1f}"


@pytest.mark.parametrize(
    ("dtype_name", "params", "shape"),
    [
        ("float32", {"dim": 0}, "4096x131072"),
        ("bfloat16", {}, "32768x1024"),
        ("bfloat16", {"dim": -1}, "32768x1024"),
    ],
)
def test_only_what_fits_is_shown(
    dtype_name: str, params: dict[str, Any], shape: str, mixed_bench: Bench
) -> None:
    lines = _shown(mixed_bench, dtype_name, width=130, **params)
    assert [line.split()[0] for line in lines[3:]] == [shape]


def test_where_nothing_fits_a_sentence_says_so(mixed_bench: Bench) -> None:
    assert _shown(mixed_bench, "bfloat16", dim=0) == [
        "No times of softmax dim=0 bfloat16 are recorded on an NVIDIA H200, 2026-11-20."
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 100])
def test_no_terminal_is_too_narrow_for_a_figure(width: int, mixed_bench: Bench) -> None:
    text = "".join("".join(_shown(mixed_bench, "float32", width, dim=-1)).split())
    assert "…" not in text


def test_all_implementations_fit_into_100_columns() -> None:
    shares = dict.fromkeys(("cuda", "cuda_inline", "triton", "torch"), 0.5)
    shares |= dict.fromkeys(("torch.compile", "unfused", "liger"), 0.1)
    cases = (make_case((4096, 131072), shares=shares),)
    lines = _shown(replace(make_bench(), cases=cases), "float32")
    assert "4096x131072" in lines[3]
    assert len(lines) == 4


def test_a_name_from_a_file_does_not_drive_the_terminal(mixed_bench: Bench) -> None:
    environment = {**mixed_bench.environment, "gpus": ["[bold]T4 \x1b[31m\x07"]}
    bench = replace(mixed_bench, environment=environment)
    text = "\n".join(_shown(bench, "float32", dim=-1))
    assert "Recorded on a [bold]T4 [31m, 2026" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_recorded_times_as_json(mixed_bench: Bench) -> None:
    document = recorded.to_json(mixed_bench, _case("float32", dim=-1))
    assert json.loads(json.dumps(document)) == document
    assert {key: document[key] for key in ("gpu", "date", "commit", "file")} == {
        "gpu": "NVIDIA H200",
        "date": "2026-11-20T08:14:24+00:00",
        "commit": "53ae9a6c90f7",
        "file": "records/nvidia-h200/softmax.json",
    }
    first, second = document["cases"]
    assert first["case"]["shape"] == [16384, 4096]
    assert first["ceiling"]["mix"] == "1:1"
    median = mixed_bench.cases[0].timings["cuda"].median_us  # type: ignore[union-attr]
    assert first["timing"]["cuda"]["median_us"] == median
    assert first["timing"]["quack"] == {"skipped": NOT_INSTALLED.reason}
    assert second["timing"]["cuda"] == {"skipped": TOO_LONG.reason}
    assert recorded.to_json(mixed_bench, _case("float16"))["cases"] == []


# ---- compare record --check ----------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a commit."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    for name in ("csrc/add/add.cu", "csrc/emulator/x.h", "compare/cli.py", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for command in (
        "init -q",
        "add .",
        "-c user.name=x -c user.email=x -c commit.gpgsign=false commit -q -m x",
    ):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    monkeypatch.setattr(repository, "ROOT", tmp_path)
    return tmp_path


def test_commit_of_the_checkout(checkout: Path) -> None:
    commit = repository.commit()
    assert commit
    assert len(commit) == 12
    (checkout / "records").mkdir()
    for name in ("records/x.json", "README.md"):  # which a record writes
        (checkout / name).write_text("x")
    assert repository.commit() == commit
    (checkout / "compare/cli.py").write_text("x")
    assert repository.commit() == f"{commit}+"
    for known in (commit, f"{commit}+", commit[:7]):
        assert repository.has_commit(known)
    for unknown in ("0" * 12, "HEAD", "--help", ""):
        assert repository.has_commit(unknown) is False


def test_kernels_that_differ_from_the_commit(checkout: Path) -> None:
    for name in ("csrc/emulator/x.h", "compare/cli.py", "README.md"):
        (checkout / name).write_text("x")
    assert repository.changed_kernels() == []
    recording.require_committed_kernels()
    (checkout / "csrc/add/add.cu").write_text("x")
    says = r"commit the kernels first, .* \(not committed: csrc/add/add\.cu\)$"
    with pytest.raises(UsageError, match=says):
        recording.require_committed_kernels()
    (checkout / "triton_kernels/add").mkdir(parents=True)
    (checkout / "triton_kernels/add/add.py").touch()
    (checkout / "csrc/add/add.cu").unlink()
    with pytest.raises(UsageError, match=r"csrc/add/add\.cu and 1 more\)$"):
        recording.require_committed_kernels()


@pytest.mark.parametrize("is_git_there", [True, False])
def test_without_a_repository_there_is_no_commit(
    is_git_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_git_there:
        monkeypatch.setattr(repository, "ROOT", tmp_path)
    else:
        monkeypatch.setenv("PATH", "")
    assert repository.commit() is None
    assert repository.has_commit("53ae9a6c90f7") is None
    recording.require_committed_kernels()


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Bench]:
    """The files of `compare record`, without any measurement."""
    kept: list[Bench] = []

    def keep(measured: Bench) -> Path:
        kept.append(measured)
        return store.file_of(measured)

    def measured(op: str) -> Bench:
        found = make_bench(op)
        return replace(found, environment={**found.environment, KEY: None})

    monkeypatch.setattr(gpu_state, "obstacle", lambda: None)
    monkeypatch.setattr(plots, "require_matplotlib", lambda: None)
    monkeypatch.setattr(benchmark, "compile_ahead", lambda *_: None)
    monkeypatch.setattr(benchmark, "bench", lambda request, *_: measured(request.op))
    monkeypatch.setattr(benchmark, "failures", lambda *_: [])
    for module, name in (
        (rung_times, "measure_rungs"),
        (fusions, "measure"),
        (drawn, "measure"),
    ):
        monkeypatch.setattr(module, name, lambda op, *_, **__: measured(op.name))
    monkeypatch.setattr(store, "write", keep)
    monkeypatch.setattr(readme, "redraw", list)
    monkeypatch.setattr(recording, "_run_example", lambda progress: "")
    return kept


def test_a_record_has_the_hashes_of_its_sources(
    kept: list[Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "changed_kernels", list)
    files = recording.record(["add", "gelu_backward", "matmul"], lambda _: None)
    # Also ladders, what is fused and what is drawn.
    assert len(files) == len(kept) == 3 + 3 + 1 + 1
    assert {each.op for each in kept} == {"add", "gelu_backward", "matmul"}
    for each in kept:
        assert each.environment[KEY] == hashes(each.op)
        assert each.environment["gpus"] == ["NVIDIA H200"]


def test_a_record_that_was_cut_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cases = tuple(Case((n, 64), torch.bfloat16) for n in (1, 2, 3))
    request = benchmark.Request(
        *("softmax", None, ("bfloat16",), None, (), ()), sweep=False, starts=False
    )
    measured: list[Case] = []

    def measure(_request: object, _op: object, case: Case, _progress: object) -> Any:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(case)
        return make_case(case.shape, case.dtype)

    plan = benchmark.Plan(cases, (), ())
    monkeypatch.setattr(benchmark, "plan", lambda _: plan)
    monkeypatch.setattr(benchmark, "_measure", measure)
    monkeypatch.setattr(benchmark, "free_memory", lambda: None)
    monkeypatch.setattr(gpu_state, "measuring", contextlib.nullcontext)
    monkeypatch.setattr(ceiling, "matmul_rate", lambda _: Skipped("no time"))

    def bench(environment: dict[str, Any]) -> Bench:
        unfinished = Unfinished("softmax", environment, CaseTimes)
        result = benchmark.bench(request, lambda _: None, unfinished)
        unfinished.forget()
        return result

    morning = {**make_bench().environment, "date": "2026-11-20T08:14:24+00:00"}
    noon = {**morning, "date": "2026-11-20T12:00:00+00:00"}
    with pytest.raises(KeyboardInterrupt):
        bench(morning)
    assert measured == [*cases[:2]]
    for other in ({"date": "2026-11-21"}, {"commit": "another"}, {"gpus": [RTX]}):
        assert (
            Unfinished("softmax", {**noon, **other}, CaseTimes).find(cases[0]) is None
        )
    assert Unfinished("gelu", noon, CaseTimes).find(cases[0]) is None

    measured.clear()
    assert bench(noon).cases == tuple(
        make_case(each.shape, each.dtype) for each in cases
    )
    assert measured == [cases[2]]
    assert (
        Unfinished("softmax", noon, CaseTimes).find(cases[0]) is None
    )  # it is finished


def test_kernels_that_are_not_committed_are_not_recorded(
    kept: list[Bench],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(repository, "changed_kernels", lambda: ["csrc/add/add.cu"])
    assert main(["record", "add"]) == 2
    assert capsys.readouterr() == (
        "",
        "compare: commit the kernels first, because a record names the commit that "
        "has them (not committed: csrc/add/add.cu)\n",
    )
    assert not kept


@pytest.mark.parametrize("commit", ["53ae9a6c90f7", None])
def test_a_record_without_a_commit_is_said(
    commit: str | None,
    kept: list[Bench],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(repository, "changed_kernels", list)
    monkeypatch.setattr(repository, "commit", lambda: commit)
    assert main(["record", "add"]) == 0
    says = "compare: git knows no commit here, so none is recorded\n"
    assert capsys.readouterr().err == ("" if commit else says)
    assert kept


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records of this code, of older code, and of an unknown commit."""
    monkeypatch.setattr(
        repository, "has_commit", lambda commit: commit == "53ae9a6c90f7"
    )
    folder = tmp_path / "records"
    store.write(make_bench("add"), folder)
    store.write(_of_older_code(make_bench("gelu"), "triton"), folder)
    environment = make_bench().environment

    def keep(kind: str, document: dict[str, Any], **changes: Any) -> None:
        document["environment"] = environment | changes
        file = store.folder_of(environment["gpus"][0], folder) / kind / f"{kind}.json"
        store.replace(file, json.dumps(document).encode())

    keep("fusion", {"op": "add"}, commit=None, **{KEY: None})
    known = {KEY: hashes("add", "gelu")}
    keep("nsight-compute", {"ops": ["add", "gelu"]}, commit="0badc0ffee00+", **known)
    keep("unknown", {})
    return folder


def test_checking_the_records(folder: Path) -> None:
    found = check.check(folder=folder)
    *rows, empty, summary, absent = check.text(found).splitlines()
    h200 = ["NVIDIA H200", "2026-11-20"]
    this, older = "of this code", "of older code"
    assert [re.split("  +", row) for row in rows] == [
        ["op", "GPU", "date", "commit", "CUDA", "Triton"],
        ["unknown", *h200, "53ae9a6c90f7", older, older],
        ["add", *h200, "53ae9a6c90f7", this, this],
        ["add fusion", *h200, "none", older, older],
        ["add, gelu nsight-compute", *h200, "0badc0ffee00+", this, this],
        ["gelu", *h200, "53ae9a6c90f7", this, older],
    ]
    assert (empty, summary) == ("", "3 of 5 are of older code")
    name = "0badc0ffee00+ (add, gelu nsight-compute)"
    assert absent == f"commits that are not in this repository: {name}"
    document = check.to_json(found)
    assert json.loads(json.dumps(document)) == document
    assert document["records"][4] == {
        "file": "nvidia-h200/gelu.json",
        "kind": "times",
        "ops": ["gelu"],
        "gpu": "NVIDIA H200",
        "date": "2026-11-20",
        "commit": "53ae9a6c90f7",
        "has_commit": True,
        "is_of_this_code": {"cuda": True, "triton": False},
    }
    keys = ("kind", "ops", "commit", "has_commit")
    assert [[each[key] for key in keys] for each in document["records"][:4]] == [
        ["unknown", [], "53ae9a6c90f7", True],
        ["times", ["add"], "53ae9a6c90f7", True],
        ["fusion", ["add"], None, None],
        ["nsight-compute", ["add", "gelu"], "0badc0ffee00+", False],
    ]


def test_checking_the_records_of_an_op(folder: Path) -> None:
    found = check.check(["gelu"], folder)
    assert [each.ops for each in found] == [("add", "gelu"), ("gelu",)]
    with pytest.raises(UsageError, match="there is no record of softmax"):
        check.check(["add", "softmax"], folder)


def test_checking_without_git_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "has_commit", lambda commit: None)
    lines = check.text(check.check(folder=folder)).splitlines()
    assert lines[-1] == "git cannot say here whether the repository has the commits"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "Expecting value"),
        ("[]", "indices"),
        ("{}", "it lacks 'environment'"),
        ('{"environment": {}}', "it lacks 'gpus'"),
        ('{"environment": {"gpus": []}}', "out of range"),
    ],
)
def test_checking_a_file_of_something_else(
    content: str, says: str, folder: Path
) -> None:
    file = folder / "nvidia-h200/x.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=says) as caught:
        check.check(folder=folder)
    assert str(caught.value).startswith(f"{file} is no record: ")


def test_checking_where_nothing_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing is recorded yet"):
        check.check(folder=tmp_path)


def test_a_name_in_a_record_does_not_drive_the_terminal(folder: Path) -> None:
    bench = make_bench(gpu="T4\x1b[31m", date="\x07")
    store.write(bench, folder)
    text = check.text(check.check(folder=folder))
    assert "T4[31m" in text
    assert text.isascii()
    assert all(each.isprintable() for each in text.splitlines())


@pytest.mark.parametrize(("older", "exit_code"), [((), 0), (("cuda",), 1), (SIDES, 1)])
def test_exit_code_of_a_check(
    older: tuple[str, ...],
    exit_code: int,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checked = replace(check.check(["gelu"], folder)[0], older=older)
    monkeypatch.setattr(check, "check", lambda ops: [checked])
    assert main(["record", "--check"]) == exit_code
    assert capsys.readouterr().out == check.text([checked])
    assert main(["record", "--check", "--json", "-"]) == exit_code
    document = check.to_json([checked])
    assert json.loads(capsys.readouterr().out) == document
    file = tmp_path / "x.json"
    assert main(["record", "gelu", "--check", "--json", str(file)]) == exit_code
    assert capsys.readouterr().out == check.text([checked])
    assert json.loads(file.read_text()) == document


def test_a_check_needs_neither_torch_nor_a_gpu() -> None:
    code = (
        "import sys; from compare.cli import main; code = main(['record', '--check']); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode in (0, 1)
    assert done.stderr == ""
    files = [*store.FOLDER.glob("*/*.json"), *store.FOLDER.glob("*/*/*.json")]
    table = done.stdout.partition("\n\n")[0]
    assert len(table.splitlines()) == 1 + len(files) > 1
    assert (done.returncode == 0) == ("of older code" not in table)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("record --json -", "--json: it is --check whose list can be written as JSON"),
        ("record --redraw --json -", "--json: it is --check whose list"),
        ("record --redraw --check", "--check: not allowed with argument --redraw"),
        ("record --check --json no/such/file", "--json: there is no folder no/such"),
        ("record --check softmaxx", "there is no op 'softmaxx'"),
    ],
)
def test_command_lines_of_a_check_that_make_no_sense(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err.startswith(f"compare: {complaint}")
