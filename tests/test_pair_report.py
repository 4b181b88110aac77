"""Reports on files that are no op of the project: findings, terminal, JSON and page."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pages
import pytest
from rich.console import Console
from test_page import Page

from bindings.registry import OPS
from bindings.sources import ROOT
from bindings.trial import Traffic
from bindings.trials import TRIALS
from compare.assembly import places
from compare.assembly.listing import Frame, Listing, parse_ptx
from compare.code import findings, launch, who_does_what
from compare.code.architectures import ARCHITECTURES
from compare.code.kernel_code import KernelCode, Side, inspect_triton
from compare.judge.cases import Case, launcher_arguments
from compare.judge.checks import Check
from compare.judge.parity import Parity, Skipped
from compare.report import code_views, terminal, views
from compare.report.comparison import Report, all_to_json, to_json
from compare.report.own_pair import OwnPair, register_sources
from compare.report.page import render
from compare.report.page.definitions import cuda_lines, python_lines
from compare.report.page.simulated import extras_of
from compare.report.tables import Grid
from compare.timing.times import CaseTimes, Ceiling, Timing

FIRST, TWIN = "triton_kernels/softmax/first.py", "triton_kernels/softmax/twin.py"
CLEAN = Check("clean", "good")
RACE = Check("1 race", "bad", "mine.py:12: two threads write to one address")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forgets afterwards which files were registered."""
    monkeypatch.setattr(places, "_registered", {})
    places.project_file.cache_clear()
    yield
    places.project_file.cache_clear()


def moved(listing: Listing, original: str, path: Path) -> Listing:
    """A listing as if this file of the project stood elsewhere."""

    def frame(each: Frame) -> Frame:
        is_it = each.file.endswith(original)
        return dataclasses.replace(each, file=str(path)) if is_it else each

    instructions = (
        dataclasses.replace(each, frames=tuple(map(frame, each.frames)))
        for each in listing.instructions
    )
    return dataclasses.replace(listing, instructions=tuple(instructions))


def elsewhere(
    code: KernelCode, side: Side, original: str, path: Path, name: str
) -> KernelCode:
    """The code of one of the project's files as if it were a user's own."""
    path.parent.mkdir(exist_ok=True)
    path.write_text((ROOT / original).read_text("utf-8"), "utf-8")
    sass = code.sass
    return dataclasses.replace(
        code,
        side=side,
        name=name,
        ptx=moved(code.ptx, original, path),
        read_sass=lambda: moved(sass, original, path),
    )


def rung(name: str) -> KernelCode:
    """Softmax in Triton, on a rung."""
    op = OPS["softmax"].on_rung(name)
    arguments = launcher_arguments(op, Case(TRIALS[op.name].small_shape))
    return inspect_triton(op, arguments, ARCHITECTURES[90])


def versions(folder: Path) -> tuple[KernelCode, KernelCode]:
    """Two versions of one Triton kernel, in old.py and new.py."""
    paths = folder / "old.py", folder / "new.py"
    register_sources(paths)
    return (
        elsewhere(rung("first"), "cuda", FIRST, paths[0], "old.py"),
        elsewhere(rung("twin"), "triton", TWIN, paths[1], "new.py"),
    )


def own_report(folder: Path, **changes: Any) -> Report:
    """A report on two versions, without a reference."""
    codes = versions(folder)
    files: dict[Side, str] = {"cuda": "old.py", "triton": "new.py"}
    report = Report(
        op="old.py and new.py",
        environment=pages.made_up_report().environment,
        case=None,
        backends=("cuda", "triton"),
        parity=dict.fromkeys(("cuda", "triton"), pages.PARITY),
        times=Skipped("times need a GPU"),
        codegen=dict(zip(files, codes, strict=True)),
        findings=findings.find(*codes),
        names={"cuda": "old.py", "triton": "new.py"},
        checks={"races": dict.fromkeys(files, CLEAN)},
        notes=("old.py launches once",),
        parity_row="agree with each other",
        own=OwnPair(
            what="x (1823, 781) float32",
            files=files,
            languages={"cuda": "triton", "triton": "triton"},
            texts={file: (folder / file).read_text("utf-8") for file in files.values()},
            traffic_bytes=2 * 4 * 1823 * 781,
            grids=(Grid("configurations", ("", "BLOCK"), (("chosen", "1024"),)),),
        ),
    )
    return dataclasses.replace(report, **changes)


def made_up(
    side: Side, name: str, body: str = "", file: str = "/nowhere/x.cu"
) -> KernelCode:
    """A kernel in CUDA, which loads a number in line 2 of a file."""
    ptx = parse_ptx(
        f""".file 1 "{file}"
        .visible .entry softmax_kernel(.param .u64 softmax_kernel_param_0)
        {{
            .loc 1 2 0
            ld.param.u64 %rd1, [softmax_kernel_param_0];
            ld.global.b32 %r1, [%rd1];
            {body}
            st.global.b32 [%rd1], %r1;
            ret;
        }}
        """.replace(";", ";\n")
    )
    changes: dict[str, Any] = {"name": name, "language": "cuda", "ptx": ptx}
    code = pages.made_up_code(side, **changes)
    del vars(code)["simulation"]  # that of another kernel
    return code


def shown(show: Any, *arguments: Any, **options: Any) -> str:
    """What a function prints on a console."""
    console = Console(file=io.StringIO(), width=160, highlight=False)
    show(*arguments, console, **options)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# ---- places ----


def test_a_registered_file_is_one_of_the_projects(tmp_path: Path) -> None:
    code, _ = versions(tmp_path)
    loads = code.ptx.in_category("global load")
    assert all(re.fullmatch(r"old\.py:\d+", e) for e in places.in_op(loads))
    assert places.in_op(loads) == places.in_sources(loads) != ()
    assert places.project_file(str(tmp_path / "other.py")) == ""


def test_two_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "mine.cu" for folder in ("a", "b")]
    other = tmp_path / "a/mine.py"
    assert [*register_sources([*paths, other]).values()] == [
        *("a/mine.cu", "b/mine.cu", "mine.py")
    ]
    assert places.project_file(str(paths[1])) == "b/mine.cu"


# ---- findings ----


def test_findings_say_what_an_edit_changed(tmp_path: Path) -> None:
    found = {each.rule: each for each in findings.find(*versions(tmp_path))}
    assert "old.py loads x 3 times as often" in found["bytes moved"].text
    assert re.match(
        r"A thread takes \d+ registers in old\.py, \d+ in new\.py\.",
        found["occupancy"].text,
    )
    for rule in ("executed", "occupancy", "elements per thread", "shared memory"):
        assert found[rule].side
    text = " ".join(each.text for each in found.values())
    assert "CUDA" not in text
    assert "Triton" not in text
    assert "same code" not in found


def test_of_two_identical_kernels_nothing_differs(tmp_path: Path) -> None:
    old, _ = versions(tmp_path)
    found = findings.find(old, dataclasses.replace(old, side="triton", name="new.py"))
    assert [each.rule for each in found if each.side] == []
    assert found[0].text == "The compiler makes the same PTX of both."


def test_barriers_are_counted() -> None:
    old = made_up("cuda", "old.cu", "bar.sync 0;" * 12)
    new = made_up("triton", "new.cu", "bar.sync 0;" * 5)
    found = {each.rule: each for each in findings.find(old, new)}
    text = "A warp comes to 12 barriers in old.cu, to 5 in new.cu."
    assert (found["barriers"].text, found["barriers"].side) == (text, "cuda")
    assert len(found["barriers"].cuda) == 12


def test_languages_are_told_from_sides(tmp_path: Path) -> None:
    old, new = versions(tmp_path)
    assert "programs of" in launch.sentences(old)[0]
    assert who_does_what.table(old, new) == ()
    cuda = pages.made_up_code("cuda", name="mine.cu")
    (first, *_) = who_does_what.table(cuda, new)
    assert (first.cuda.how, first.triton.how) == ("by hand", "automatic")


# ---- terminal and JSON ----


def test_terminal(tmp_path: Path) -> None:
    text = shown(terminal.show, own_report(tmp_path), all_findings=True)
    for part in (
        *("old.py and new.py", "x (1823, 781) float32", "agree with each other"),
        *("races", "clean", "old.py launches once", "configurations", "1024"),
        *("old.py PTX", "new.py SASS", "bytes / sectors of fewest"),
    ):
        assert part in text
    assert "PyTorch" not in text
    assert "parity with float64" not in text


@pytest.mark.parametrize("view", [*("trace", "memory", "who", "mix"), ""])
def test_study(view: str, tmp_path: Path) -> None:
    text = shown(views.show, own_report(tmp_path), [view] if view else [])
    expected = {"who": "both are in one language", "": "new.py, softmax_kernel"}
    assert expected.get(view, "new.py") in text


def test_study_without_a_kernel_shows_the_whole_file(tmp_path: Path) -> None:
    report = own_report(tmp_path)
    nothing = {"cuda": Skipped("no nvcc"), "triton": Skipped("no nvcc")}
    text = shown(views.show, dataclasses.replace(report, codegen=nothing), [])
    assert "import triton" in text
    assert "def softmax" in text


def test_listings(tmp_path: Path) -> None:
    report = own_report(tmp_path)
    assert "old.py: softmax" in shown(code_views.show_diff, report)
    assert "new.py: softmax" in shown(code_views.show_listings, report, "sass")


def test_a_failed_check_fails_and_is_told(tmp_path: Path) -> None:
    report = own_report(tmp_path, checks={"races": {"cuda": RACE, "triton": CLEAN}})
    assert own_report(tmp_path).passed
    assert not report.passed
    text = " ".join(shown(terminal.show, report).split())
    assert f"old.py, races: {RACE.problem}" in text


def test_json(tmp_path: Path) -> None:
    report = own_report(tmp_path, checks={"races": {"cuda": RACE}})
    found = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert found["schema_version"] == 1
    assert found["op"] == "old.py and new.py"
    assert found["files"] == {"cuda": "old.py", "triton": "new.py"}
    assert found["checks"]["races"]["cuda"]["passed"] is False
    assert found["notes"] == ["old.py launches once"]
    (case,) = found["cases"]
    assert case["case"] == "x (1823, 781) float32"
    assert case["parity"].keys() == {"cuda", "triton"}
    evidence = [e for each in case["findings"] for e in each["evidence"]]
    assert any((each["place"] or "").startswith("old.py:") for each in evidence)
    assert len(all_to_json([report, report])["ops"]) == 2


def test_table_of_many_files(tmp_path: Path) -> None:
    def timing(us: float) -> Timing:
        return Timing(us, us, us, us, us, 9, "graph", 4.0, None, 1.0, 0.5)

    times = CaseTimes(
        case=Case((1823, 781)),
        timings={"cuda": timing(10), "triton": timing(40), "torch": timing(20)},
        traffic=Traffic(1, 1),
        ceiling=Ceiling("1:1", 10.0, 1.0, "copy"),
        comparisons=(),
        gpu_state=None,
    )
    failed = dataclasses.replace(pages.PARITY, problem="all is 0")
    report = own_report(
        tmp_path,
        parity={"cuda": pages.PARITY, "triton": failed, "torch": pages.PARITY},
        checks={"races": {"cuda": CLEAN}},
        times=times,
        parity_row="parity with float64",
    )
    one = own_report(tmp_path, backends=("cuda",), parity={"cuda": pages.PARITY})
    text = shown(terminal.show_table, [report, one])
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    assert ["old.py", "passed", "clean", "10.00 us", "2.00x"] in rows
    assert ["new.py", "FAILED", "-", "40.00 us", "0.50x"] in rows
    assert ["old.py", "passed", "clean", "-", "-"] in rows
    assert "new.py is wrong: all is 0" in text


# ---- the page ----


def assert_sound(page: Page) -> None:
    """Ids are unique; places, findings and panels are there that are linked to."""
    ids = [found["id"] for _, found, _ in page.elements if "id" in found]
    assert len({*ids}) == len(ids)
    for _, found, _ in page.elements:
        for name in ("aria-controls", "aria-labelledby"):
            assert name not in found or found[name] in ids
    lengths = {
        found["data-file"]: text.count("\n")
        for found, text in page.all("ol")
        if "data-file" in found
    }
    chains = page.data["chains"]
    own = [p for side in chains.values() for each in side for p in each["places"]]
    for file, _, line in (place.rpartition(":") for place in own):
        assert file not in lengths or 1 <= int(line) <= lengths[file]
    assert any(place.rpartition(":")[0] in lengths for place in own)
    for found, _ in page.all("a", **{"class": "place"}):
        assert found["href"].removeprefix("#line=").partition("%3A")[0] in lengths


def test_page(tmp_path: Path) -> None:
    report = own_report(tmp_path)
    html = render(report, extras_of(report))
    assert str(tmp_path) not in html
    page = Page(html)
    assert_sound(page)
    assert {*page.data["chains"]} == {"cuda", "triton"}
    assert page.data["names"] == {"cuda": "old.py", "triton": "new.py"}
    headings = [text for _, text in page.all("h2")]
    assert "old.py (Triton)" in headings
    assert "configurations" in headings
    assert "Who does what" not in headings
    assert not page.all("section", id="times")
    files = [found["data-file"] for found, _ in page.all("ol") if "data-file" in found]
    assert files[0] == "old.py"
    assert "new.py" in files
    assert page.data["sections"]  # by the markers that stand in the file


def test_page_of_both_languages_and_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.cu"
    text = (ROOT / pages.CUDA).read_text("utf-8")
    path.write_text(text, "utf-8")
    register_sources([path])
    cuda = made_up("cuda", "mine.cu", file=str(path))
    _, triton = versions(tmp_path)
    files: dict[Side, str] = {"cuda": "mine.cu", "triton": "new.py"}
    own = OwnPair(
        "x",
        files,
        {"cuda": "cuda", "triton": "triton"},
        {"mine.cu": text, "new.py": (tmp_path / "new.py").read_text("utf-8")},
    )
    report = own_report(
        tmp_path,
        codegen={"cuda": cuda, "triton": triton},
        findings=findings.find(cuda, triton),
        names=files,
        own=own,
    )
    page = Page(render(report, extras_of(report)))
    assert_sound(page)
    assert "Who does what" in [text for _, text in page.all("h2")]
    one = dataclasses.replace(
        report,
        backends=("cuda",),
        parity={"cuda": pages.PARITY},
        codegen={"cuda": cuda, "triton": Skipped("not asked for")},
        findings=(),
        own=dataclasses.replace(own, files={"cuda": "mine.cu"}),
    )
    page = Page(render(one, extras_of(one)))
    assert_sound(page)
    assert {*page.data["chains"]} == {"cuda"}


def test_a_file_on_both_sides_is_there_twice(tmp_path: Path) -> None:
    report = own_report(tmp_path)
    old = report.codegen["cuda"]
    assert isinstance(old, KernelCode)
    assert report.own
    both = dataclasses.replace(old, side="triton", name="old.py again")
    files: dict[Side, str] = {"cuda": "old.py", "triton": "old.py"}
    report = dataclasses.replace(
        report,
        codegen={"cuda": old, "triton": both},
        findings=(),
        names={"cuda": "old.py", "triton": "old.py again"},
        own=dataclasses.replace(report.own, files=files),
    )
    page = Page(render(report, extras_of(report)))
    assert_sound(page)
    for places_of in page.data["sections"].values():
        assert {*places_of} == {"cuda", "triton"}


def test_page_tells_what_failed(tmp_path: Path) -> None:
    wrong = Parity("emulator", pages.PARITY.error, pages.PARITY.allowed, "all is 0")
    report = own_report(
        tmp_path,
        parity={"cuda": wrong, "triton": pages.PARITY},
        checks={"races": {"cuda": RACE, "triton": CLEAN}},
    )
    text = Page(render(report)).all("body")[0][1]
    assert "old.py is wrong: all is 0" in text
    assert RACE.problem in text


def test_page_of_files_without_marked_sections(tmp_path: Path) -> None:
    report = own_report(tmp_path)
    assert report.own
    texts = {file: t.replace("# -- ", "# ") for file, t in report.own.texts.items()}
    own = dataclasses.replace(report.own, texts=texts)
    page = Page(render(dataclasses.replace(report, own=own)))
    assert_sound(page)
    assert not page.data["sections"]


# ---- where kernels stand ----

CUDA = """\
#include <x.h>
// __global__ void k(int) { }
__global__ void k(float* x);
namespace a {
    template <int N>
    static __global__ void __launch_bounds__(256)
    k(float* x) {  // }
        if (x[0] == '}') { printf("}"); }
    }
}
extern "C" __global__ void other(int n) { }
"""


def test_a_cuda_kernel_is_found_by_its_name() -> None:
    assert cuda_lines(CUDA, "k") == range(5, 10)
    assert cuda_lines(CUDA, "other") == range(11, 12)
    assert cuda_lines(CUDA, "nothing") is None


def test_a_triton_kernel_is_found_by_its_name() -> None:
    text = "import x\nif x:\n    @jit\n    def k():\n        pass\n"
    assert python_lines(text, "k") == range(3, 6)
    assert python_lines(text, "nothing") is None
    assert python_lines("def k(:", "k") is None
