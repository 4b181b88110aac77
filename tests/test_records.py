"""What was measured is kept, found again, and shown where nothing can be measured."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from benches import NOT_INSTALLED, TOO_LONG, make_bench, make_case
from rich.console import Console

from compare import records
from compare.errors import UnavailableError, UsageError
from compare.report import recorded
from compare.timing.model import Bench, to_json

RTX = "NVIDIA GeForce RTX 4090"


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    bench = make_bench()
    file = records.write(bench, tmp_path)
    assert file == tmp_path / "nvidia-h200/softmax.json"
    assert records.read(file) == bench
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
    assert records.folder_of(gpu, tmp_path) == tmp_path / folder


def test_a_later_run_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    records.write(make_bench(), tmp_path)
    later = make_bench(date="2027-01-02T00:00:00+00:00")
    file = records.write(later, tmp_path)
    assert records.read_all(tmp_path) == [later]
    assert list(file.parent.iterdir()) == [file]


def test_a_run_that_cannot_be_written_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = make_bench()
    file = records.write(earlier, tmp_path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    later = make_bench(date="2027-01-02T00:00:00+00:00")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UnavailableError) as caught:
        records.write(later, tmp_path)
    assert str(caught.value) == f"{file} cannot be written (No space left on device)"
    assert records.read(file) == earlier
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


def _with_median(value: object) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["cases"][0]["timing"]["cuda"].update(
        median_us=value
    )


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
        (lambda each: each.update(environment=[]), "no attribute 'keys'"),
        (lambda each: each.update(notes=None), "not iterable"),
        (_with_median("fast"), "'fast' stands where a number should be"),
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
        records.read(file)
    assert str(caught.value).startswith(f"{file} is not what compare record")


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
        records.read(file)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"x\.json cannot be read \(No such file"):
        records.read(tmp_path / "x.json")


def test_records_come_by_gpu_and_op(tmp_path: Path) -> None:
    for op in ("softmax", "add"):
        for gpu in ("NVIDIA H200", RTX):
            records.write(make_bench(op, gpu), tmp_path)
    (tmp_path / "of-an-older-format.json").write_text("{}")
    found = [(records.gpu(each), each.op) for each in records.read_all(tmp_path)]
    h200 = "NVIDIA H200"
    assert found == [(RTX, "add"), (RTX, "softmax"), (h200, "add"), (h200, "softmax")]


def test_without_a_folder_nothing_is_recorded(tmp_path: Path) -> None:
    nowhere = tmp_path / "records"
    assert records.read_all(nowhere) == []
    assert records.find("softmax", nowhere) is None
    with pytest.raises(UsageError, match="nothing is recorded yet"):
        records.choose([], None, nowhere)


@pytest.mark.parametrize("newest", ["NVIDIA H200", RTX])
def test_the_newest_record_is_found(newest: str, tmp_path: Path) -> None:
    for gpu in ("NVIDIA H200", RTX):
        day = "2026-11-21" if gpu == newest else "2026-11-20"
        records.write(make_bench(gpu=gpu, date=f"{day}T08:00:00+00:00"), tmp_path)
    found = records.find("softmax", tmp_path)
    assert found is not None
    assert records.gpu(found) == newest
    assert records.find("add", tmp_path) is None


def test_choosing_what_to_draw(tmp_path: Path) -> None:
    for op in ("softmax", "add"):
        file = records.write(make_bench(op), tmp_path)

    def choose(ops: list[str], source: Path | None = None) -> list[str]:
        found = records.choose(ops, None if source is None else str(source), tmp_path)
        return [each.op for each in found]

    assert choose([]) == ["add", "softmax"]
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
    assert records.unusual_params(op_name, params) == unusual


def _shown(bench: Bench, dtype_name: str, width: int = 100, **params: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        recorded.show(bench, dtype_name, params, console)
    return capture.get().splitlines()


@pytest.fixture
def mixed_bench() -> Bench:
    """Cases of two dtypes and two dims, one in which ours is missing."""
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
        "Times recorded on an NVIDIA H200, 2026-11-20 "
        "(torch 2.11.0+cu130, triton 3.6.0), not measured here"
    )
    rows = [line.split() for line in lines[3:]]
    large, larger = (each.timings for each in mixed_bench.cases[:2])
    names = ("cuda", "triton", "torch", "torch.compile", "unfused", "liger")
    assert rows == [
        ["16384x4096", *map(_median(large), names), "96.0", "/", "95.0"],
        ["8192x32768", "-", *map(_median(larger), names[1:]), "-", "/", "95.0"],
    ]


def _median(timings: Any) -> Callable[[str], str]:
    return lambda name: f"{timings[name].kernel.median_us:,.1f}"


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
    assert "recorded on a [bold]T4 [31m, 2026" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_recorded_times_as_json(mixed_bench: Bench) -> None:
    document = recorded.to_json(mixed_bench, "float32", {"dim": -1})
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
    median = mixed_bench.cases[0].timings["cuda"].kernel.median_us  # type: ignore[union-attr]
    assert first["timing"]["cuda"]["median_us"] == median
    assert first["timing"]["quack"] == {"skipped": NOT_INSTALLED.reason}
    assert second["timing"]["cuda"] == {"skipped": TOO_LONG.reason}
    assert recorded.to_json(mixed_bench, "float16", {})["cases"] == []
