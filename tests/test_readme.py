"""What the README says of speed is what was recorded, and its links lead somewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benches import SHARES, TOO_LONG, make_bench, make_case

from bindings.sources import ROOT
from compare.errors import UsageError
from compare.judge.parity import Skipped
from compare.records import store
from compare.records.source_hash import KEY, hashes
from compare.report import plots, readme
from compare.timing.times import Bench

README = ROOT / "README.md"
SECTIONS = ("comparison", "ops", "ladder", "times", "plots")

H200 = "NVIDIA H200"
T4 = "Tesla T4"


def test_sections_are_those_of_the_records() -> None:
    benches = store.read_all()
    assert benches
    text = README.read_text(encoding="utf-8")
    assert readme.rewrite(text, benches) == text


def test_plots_are_those_of_the_records() -> None:
    expected = {
        store.folder_of(store.gpu(bench)) / f"{each.name}.{suffix}": each.digest
        for bench in store.read_all()
        if bench.sweep
        for each in plots.plots(bench)
        for suffix in plots.FORMATS
    }
    drawn = {
        file for suffix in plots.FORMATS for file in store.FOLDER.glob(f"*/*.{suffix}")
    }
    assert drawn == expected.keys()
    for file, digest in expected.items():
        assert digest.encode() in file.read_bytes(), f"{file}: compare record --redraw"


def test_files_that_it_links_to_exist() -> None:
    text = README.read_text(encoding="utf-8")
    links = [part.split(")")[0] for part in text.split("](")[1:]]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_race_that_it_shows_is_where_it_says() -> None:
    text = README.read_text(encoding="utf-8")
    shown = re.findall(r"([\w/]+\.cuh?):(\d+) \(from ([\w/.]+):(\d+)\)", text)
    assert len(shown) == 2
    file = (ROOT / "csrc/common/reduce.cuh").read_text().splitlines()
    del file[next(i for i, line in enumerate(file) if "__syncthreads()" in line)]
    places = ["results[threadIdx.x", "results[warp]"]
    for (name, line, caller, caller_line), place in zip(shown, places, strict=True):
        assert name == "csrc/common/reduce.cuh"
        assert place in file[int(line) - 1]
        called = (ROOT / caller).read_text().splitlines()[int(caller_line) - 1]
        assert "block_reduce<" in called


@pytest.mark.parametrize("section", SECTIONS)
def test_each_section_has_its_place(section: str) -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    first = f"<!-- generated: {section} -->"
    last = f"<!-- end of {section} -->"
    assert lines.count(first) == lines.count(last) == 1
    assert lines.index(first) < lines.index(last)


# What follows is of records that are made up.


def _record_example(folder: Path, gpu: str = H200) -> None:
    file = store.folder_of(gpu, folder) / "compare-softmax.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("softmax  16384x4096   \n\nmedian us     130.85\x1b[0m  \n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of records with the output of the example."""
    _record_example(tmp_path / "records")
    return tmp_path / "records"


def _rows(section: str, table: int = 0) -> list[list[str]]:
    """The cells of a section's tables, without the lines between them."""
    blocks = [block for block in section.split("\n\n") if block.startswith("|")]
    lines = blocks[table].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_table_of_times(folder: Path) -> None:
    shares = SHARES | {"cuda": 0.9, "triton": 0.7, "torch": 0.8, "liger": 0.5}
    cases = (
        make_case((8192, 32768), params={"approximate": "none"}, shares=shares),
        make_case(
            (16384, 4096),
            torch.bfloat16,
            params={"approximate": "tanh"},
            skipped={"triton": TOO_LONG, "unfused": TOO_LONG},
        ),
    )
    bench = replace(make_bench("gelu"), cases=cases)
    head, rule, *rows = _rows(readme.render([bench], folder)["times"])
    names = ["CUDA", "Triton", "PyTorch", "torch.compile", "PyTorch unfused", "Liger"]
    assert head == [
        *("op", "shape", "dtype", *names),
        *("ours : fastest peer", "CUDA / Triton, % of the ceiling"),
    ]
    assert rule == ["---"] * 3 + ["--:"] * 8
    # 2 us to launch, and 1 GiB read and written at 4300 GB/s.
    ceiling = 2 + 2 * 2**30 / 4300e3
    first = [f"{ceiling / shares[name]:,.1f}" for name in SHARES]
    ceiling = 2 + 2 * 2**27 / 4300e3
    second = [f"{ceiling / share:,.1f}" for share in SHARES.values()]
    second[1] = second[4] = "-"
    assert rows == [
        [
            *("gelu", "8192x32768", "float32", *first),
            *("CUDA : torch.compile 1.00, same", "90.0 / 70.0"),
        ],
        [
            *("gelu approximate=tanh", "16384x4096", "bfloat16", *second),
            *("CUDA : Liger 0.98, faster", "96.0 / -"),
        ],
    ]


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ({"cuda": 0.5, "triton": 0.9, "liger": 0.6}, "Triton : Liger 0.67, faster"),
        ({"cuda": 0.9, "torch": 0.3, "quack": 0.99}, "-"),
        ({"cuda": 0.5, "torch": 0.9, "liger": 0.6}, "CUDA : PyTorch 1.80, slower"),
        ({"cuda": 0.5}, "-"),
        ({"liger": 0.5}, "-"),
    ],
)
def test_verdict_is_between_the_best_of_each_side(
    shares: dict[str, float], verdict: str, folder: Path
) -> None:
    case = make_case((4096, 4096), shares=shares)
    if "quack" in shares:
        case = replace(case, comparisons=())
    bench = replace(make_bench(), cases=(case,))
    _, _, row = _rows(readme.render([bench], folder)["times"])
    assert row[-2] == verdict


def test_figures_come_with_what_they_depend_on(folder: Path) -> None:
    section = readme.render([make_bench("add"), make_bench()], folder)["times"]
    assert " ".join(section.split("\n\n")[1].split()) == (
        "**NVIDIA H200**, driver 580.159.04, torch 2.11.0+cu130, triton 3.6.0, "
        "nvcc 13.0, liger-kernel 0.8.5, commit 53ae9a6c90f7, 2026-11-20; recorded: "
        "[add](records/nvidia-h200/add.json), "
        "[softmax](records/nvidia-h200/softmax.json)."
    )


def _of_older_code(bench: Bench, side: str = "cuda") -> Bench:
    sources = {**hashes(bench.op), side: "0"}
    return replace(bench, environment={**bench.environment, KEY: sources})


def test_figures_of_older_code_are_marked(folder: Path) -> None:
    benches = [make_bench("add"), _of_older_code(make_bench()), make_bench("gelu")]
    sections = readme.render(benches, folder)
    about = "† of older code: the sources have changed since."
    assert sections["times"].split("\n\n")[2] == about
    for table in (0, 1):
        names = {row[0] for row in _rows(sections["times"], table)[2:]}
        assert names == {"add", "softmax†", "gelu"}
    caption = sections["plots"].split("\n\n")[0].splitlines()
    assert caption[1:] == ["Of older code: softmax."]
    assert "compare-softmax.txt), of older CUDA code):" in sections["comparison"]


def test_figures_of_this_code_are_not_marked(folder: Path) -> None:
    for section in readme.render([make_bench("add"), make_bench()], folder).values():
        assert "†" not in section
        assert "older" not in section.lower()


def test_a_bench_without_a_commit_says_so(folder: Path) -> None:
    bench = make_bench()
    bench.environment["commit"] = None
    origin = readme.render([bench], folder)["times"].split("\n\n")[1]
    assert "liger-kernel 0.8.5, no commit, 2026-11-20;" in " ".join(origin.split())


def test_ops_of_different_days_are_told_apart(folder: Path) -> None:
    later = make_bench(date="2026-12-01T00:00:00+00:00")
    section = readme.render([make_bench("add"), later], folder)["times"]
    first, second = (" ".join(each.split()) for each in section.split("\n\n")[1:3])
    assert first.endswith("2026-11-20; recorded: [add](records/nvidia-h200/add.json).")
    assert second.endswith(
        "2026-12-01; recorded: [softmax](records/nvidia-h200/softmax.json)."
    )


def test_what_a_peer_does_differently_is_said_once(folder: Path) -> None:
    cases = (
        make_case((4096, 4096), skipped={"torch": TOO_LONG}),
        make_case((4096, 8192)),
    )
    add = replace(make_bench("add"), cases=cases)
    section = readme.render([add, make_bench()], folder)["times"]
    assert [line for line in section.splitlines() if line.startswith("- ")] == [
        "- PyTorch (add 4096x4096 float32): not timed: "
        "rows of 262144 bytes are too long for it",
        "- Liger (add, softmax): allocates its output itself",
        "- quack (add, softmax): not timed: "
        "quack is not installed: pip install quack-kernels",
    ]


def test_what_a_compiler_says_is_cut_short(folder: Path) -> None:
    said = Skipped(f"\x1b[91merror:\x1b[0m no\n  IR {'and so on ' * 30}")
    case = make_case((4096, 4096), skipped={"quack": said})
    bench = replace(make_bench(), cases=(case, make_case((4096, 8192))))
    section = readme.render([bench], folder)["times"]
    (line,) = (line for line in section.splitlines() if "error" in line)
    head = "- quack (softmax 4096x4096 float32): not timed: error: no IR and so on "
    assert line.startswith(head)
    assert line.endswith(" …")
    assert len(line) < 250


def test_table_of_starts(folder: Path) -> None:
    head, rule, *rows = _rows(readme.render([make_bench()], folder)["times"], 1)
    assert head[2:] == [
        *("call, µs", "launcher, µs", "first call, ms", "compile, s", "build, s")
    ]
    assert rule == ["---"] * 2 + ["--:"] * 5
    assert [row[1:] for row in rows] == [
        ["CUDA", "6.5", "4.2", "12", "-", "31.5"],
        ["Triton", "6.5", "4.2", "203", "1.8", "-"],
        ["PyTorch", "6.5", "-", "102", "-", "-"],
        ["torch.compile", "6.5", "-", "102", "-", "-"],
        ["PyTorch unfused", "6.5", "-", "102", "-", "-"],
        ["Liger", "6.5", "-", "102", "-", "-"],
    ]


def test_section_of_plots(folder: Path) -> None:
    bench = make_bench()
    benches = [make_bench("add"), bench, replace(make_bench("gelu"), sweep=())]
    rows = _rows(readme.render(benches, folder)["plots"])
    assert rows[2:] == [
        [
            f"![bandwidth of {op} {dtype} over size, NVIDIA H200, 2026-11-20]"
            f"(records/nvidia-h200/{op}-{dtype}.svg)"
            for dtype in ("float32", "bfloat16")
        ]
        for op in ("add", "softmax")
    ]


def test_section_of_the_example(folder: Path) -> None:
    section = readme.render([make_bench()], folder)["comparison"]
    assert section == (
        "On an NVIDIA H200 ([the run](records/nvidia-h200/compare-softmax.txt)):\n\n"
        "```\n$ python -m compare softmax\n"
        "softmax  16384x4096\n\nmedian us     130.85[0m\n```\n\n"
        "Without a GPU the kernels run on the CPU, and the times are those on record."
    )


def test_each_gpu_has_a_block_of_its_own(folder: Path) -> None:
    _record_example(folder, T4)
    benches = [make_bench(), make_bench(gpu=T4), make_bench("add", gpu=T4)]
    sections = readme.render(benches, folder)
    # Ops are the same everywhere, and a ladder is of one GPU.
    for section in set(SECTIONS) - {"ops", "ladder"}:
        assert sections[section].index("h200") < sections[section].index("tesla-t4")
    assert "On a Tesla T4 (" in sections["comparison"]
    assert len(_rows(sections["times"])) == 2 + 4
    assert len(_rows(sections["times"], 2)) == 2 + 8


def test_nothing_recorded_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing is recorded yet"):
        readme.render([], tmp_path)
    with pytest.raises(UsageError, match=r"no compare-softmax\.txt is recorded"):
        readme.render([make_bench()], tmp_path)


def _readme(**changes: str) -> str:
    blocks = {
        name: f"<!-- generated: {name} -->\nOf long ago.\n<!-- end of {name} -->\n"
        for name in SECTIONS
    }
    return "\n".join(["# Title\n", *(blocks | changes).values(), "The end.\n"])


def test_only_sections_are_rewritten(folder: Path) -> None:
    benches = [make_bench()]
    text = readme.rewrite(_readme(), benches, folder)
    assert "Of long ago." not in text
    assert text.startswith("# Title\n\n<!-- generated: comparison -->\n\nOn an NVIDIA")
    assert text.endswith(".svg) |\n\n<!-- end of plots -->\n\nThe end.\n")
    for section in readme.render(benches, folder).values():
        assert f"\n\n{section}\n\n<!-- end of" in text
    assert readme.rewrite(text, benches, folder) == text


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("<!-- generated: times -->", "expected one line '<!-- end of times -->', f"),
        ("<!-- end of times -->", "expected one line '<!-- generated: times -->', f"),
        ("see `<!-- generated: times -->`\n<!-- end of times -->", "found 0"),
        (
            "<!-- generated: times -->\n<!-- generated: times -->\n"
            "<!-- end of times -->\n<!-- end of times -->",
            "expected one line '<!-- generated: times -->', found 2",
        ),
        (
            "<!-- end of times -->\n<!-- generated: times -->",
            "the end of times comes before its beginning",
        ),
    ],
)
def test_readme_without_a_place_is_refused(block: str, says: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=f"^README: .*{says}"):
        readme.rewrite(_readme(times=block), [make_bench()], folder)


def test_redrawing(folder: Path) -> None:
    for bench in (make_bench(), replace(make_bench("add"), sweep=())):
        store.write(bench, folder)
    file = folder.parent / "README.md"
    file.write_text(_readme())
    written = readme.redraw(folder, file)
    plots = [
        folder / f"nvidia-h200/softmax-{dtype}.{suffix}"
        for dtype in ("float32", "bfloat16")
        for suffix in ("svg", "png")
    ]
    assert written == [*plots, file]
    contents = [each.read_bytes() for each in written]
    text = file.read_text(encoding="utf-8")
    assert text == readme.rewrite(text, store.read_all(folder), folder)
    assert [each.read_bytes() for each in readme.redraw(folder, file)] == contents
    for part in text.split("](")[1:]:
        target = part.split(")")[0]
        assert (folder.parent / target).exists() or (ROOT / target).exists()


def test_redrawing_writes_nothing_into_a_readme_without_a_place(folder: Path) -> None:
    record = store.write(make_bench(), folder)
    file = folder.parent / "README.md"
    file.write_text("# Title\n")
    with pytest.raises(UsageError, match="README: expected one line"):
        readme.redraw(folder, file)
    assert file.read_text() == "# Title\n"
    assert {each.suffix for each in record.parent.iterdir()} == {".json", ".txt"}
