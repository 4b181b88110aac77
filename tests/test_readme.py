"""The README's figures are those of the records, and its links lead somewhere."""

from __future__ import annotations

import itertools
import math
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benches import SHARES, TOO_LONG, make_bench, make_case

from bindings.sources import ROOT
from compare import cli
from compare.errors import UsageError
from compare.judge.parity import Skipped
from compare.records import store
from compare.records.source_hash import KEY, hashes
from compare.report import plots, readme
from compare.timing.times import Bench, Timing

README = ROOT / "README.md"
SECTIONS = tuple(itertools.chain(*readme.PAGES.values()))
DOCS = [README, *(ROOT / "docs").glob("*.md")]

H200 = "NVIDIA H200"
T4 = "Tesla T4"


def test_sections_are_those_of_the_records() -> None:
    benches = store.read_all(Bench)
    assert benches
    sections = readme.render(benches)
    assert sections.keys() == set(SECTIONS)
    # `compare docs` lists a new op, but none has to be listed before it is on record.
    listed = README.read_text(encoding="utf-8").splitlines()
    recorded = tuple(f"| `{each.op}(" for each in benches)
    sections["ops"] = "\n".join(
        line
        for line in sections["ops"].splitlines()
        if line in listed or line.startswith(recorded)
    )
    for page in readme.PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert readme.rewrite(page, text, sections) == text


def test_plots_are_those_of_the_records() -> None:
    expected = {
        store.folder_of(store.gpu(bench)) / f"{each.name}.{suffix}": each.digest
        for bench in store.read_all(Bench)
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


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_files_that_it_links_to_exist(page: Path) -> None:
    text = re.sub("```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [part.split(")")[0] for part in text.split("](")[1:]]
    assert links
    for link in links:
        assert (page.parent / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_commands_that_it_names_make_sense(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    commands = re.findall(r"`(?:python -m )?compare ([^`]+)`", text)
    commands += re.findall(r"python -m compare ([a-z][^\n`&]*)$", text, re.MULTILINE)
    for command in commands:
        if "TERM" not in command and "--help" not in command:
            words = shlex.split(command.replace("FILE", "-"), comments=True)
            cli.parse(words)


def test_code_that_docs_quote_is_there() -> None:
    for page in DOCS:
        quotes = re.findall(
            r"```(?:python|cuda)\n(.*?)```", page.read_text("utf-8"), re.S
        )
        for quote in quotes:
            if "bindings.softmax(" in quote or page.stem == "own-kernels":
                continue  # a session of a user's, or files that another test tries
            lines = [line.strip() for line in quote.splitlines() if line.strip()]
            sources = (
                file.read_text("utf-8")
                for folder in ("compare", "csrc", "triton_kernels")
                for file in (ROOT / folder).rglob("*.*")
                if file.suffix in (".py", ".cu", ".cuh")
            )
            assert any(all(line in text for line in lines) for text in sources), quote


def test_readme_is_short() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    # With as many ops and records as there were: each has a line of its own.
    n_ops = sum(line.startswith("| `") for line in lines)
    n_records = sum(line.startswith("| NVIDIA ") for line in lines)
    assert len(lines) - n_ops - n_records < 200 - 13 - 6


def test_the_race_that_it_shows_is_where_it_says() -> None:
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize(
    ("page", "section"),
    [(page, each) for page, sections in readme.PAGES.items() for each in sections],
)
def test_each_section_has_its_place(page: str, section: str) -> None:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    first = f"<!-- generated: {section} -->"
    last = f"<!-- end of {section} -->"
    assert lines.count(first) == lines.count(last) == 1
    assert lines.index(first) < lines.index(last)


# The tests below use made-up records.


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


def test_summary(folder: Path) -> None:
    slow = SHARES | {"cuda": 0.45, "triton": 0.9, "liger": 0.9, "torch.compile": 0.5}
    bench = replace(
        make_bench("gelu"),
        cases=(make_case((8192, 32768), shares=slow), make_case((8192, 32768))),
    )
    older = replace(bench, op="add", environment=bench.environment | {KEY: None})
    rows = _rows(readme.render([bench, older], folder)["summary"])
    ours, others = (make_case((8192, 32768), shares=each) for each in (slow, SHARES))
    gains = []
    for side in ("cuda", "triton"):
        ratios = []
        for case in (ours, others):
            timed = {
                name: each.median_us
                for name, each in case.timings.items()
                if isinstance(each, Timing)
            }
            peers = (timed[name] for name in timed if name not in ("cuda", "triton"))
            ratios.append(min(peers) / timed[side])
        mean = math.sqrt(math.prod(ratios))
        gains.append(f"{mean:.2f}x, {min(ratios):.2f}x")
    what = "bound by memory (2, 1 of older code)"
    assert rows[2:] == [[H200, what, "4", *gains]]


def test_matmul_is_summed_up_by_dtype(folder: Path) -> None:
    rows = _rows(readme.render([make_bench("matmul"), make_bench()], folder)["summary"])
    assert [row[1:3] for row in rows[2:]] == [
        ["bound by memory (1)", "4"],
        ["matmul in bfloat16 (1)", "2"],
        ["matmul in float32 (1)", "2"],
    ]


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
        "Without a GPU the kernels run on the CPU, at a smaller shape; "
        "times are those on record."
    )


def test_each_gpu_has_a_block_of_its_own(folder: Path) -> None:
    _record_example(folder, T4)
    benches = [make_bench(), make_bench(gpu=T4), make_bench("add", gpu=T4)]
    sections = readme.render(benches, folder)
    # Ops are the same everywhere, and a ladder is of one GPU.
    for section in ("comparison", "times", "plots"):
        assert sections[section].index("h200") < sections[section].index("tesla-t4")
    assert "On a Tesla T4 (" in sections["comparison"]
    assert [row[0] for row in _rows(sections["summary"])[2:]] == [H200, T4]
    assert len(_rows(sections["times"])) == 2 + 4
    assert len(_rows(sections["times"], 2)) == 2 + 8


def test_nothing_recorded_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing is recorded yet"):
        readme.render([], tmp_path)
    with pytest.raises(UsageError, match=r"no compare-softmax\.txt is recorded"):
        readme.render([make_bench()], tmp_path)


def _page(page: str, **changes: str) -> str:
    blocks = {
        name: f"<!-- generated: {name} -->\nOf long ago.\n<!-- end of {name} -->\n"
        for name in SECTIONS
    }
    wanted = {name: (blocks | changes)[name] for name in readme.PAGES[page]}
    return "\n".join(["# Title\n", *wanted.values(), "The end.\n"])


def test_only_sections_are_rewritten(folder: Path) -> None:
    sections = readme.render([make_bench()], folder)
    for page in readme.PAGES:
        text = readme.rewrite(page, _page(page), sections)
        assert "Of long ago." not in text
        assert text.startswith("# Title\n\n<!-- generated: ")
        assert text.endswith(" -->\n\nThe end.\n")
        up = "../" if "/" in page else ""
        for name in readme.PAGES[page]:
            section = sections[name].replace("](", f"]({up}")
            assert f"\n\n{section}\n\n<!-- end of {name} -->" in text
        assert readme.rewrite(page, text, sections) == text


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
def test_a_page_without_a_place_is_refused(block: str, says: str, folder: Path) -> None:
    page = "docs/results.md"
    sections = readme.render([make_bench()], folder)
    with pytest.raises(ValueError, match=f"^{page}: .*{says}"):
        readme.rewrite(page, _page(page, times=block), sections)


@pytest.fixture
def root(folder: Path) -> Path:
    """The folder of the pages, beside that of the records."""
    for page in readme.PAGES:
        file = folder.parent / page
        file.parent.mkdir(exist_ok=True)
        file.write_text(_page(page))
    return folder.parent


def test_pages_are_written_without_a_plotting_library(
    folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(make_bench(), folder)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    pages = [root / page for page in readme.PAGES]
    assert readme.rewrite_pages(folder, root) == pages
    assert all("Of long ago." not in page.read_text("utf-8") for page in pages)


def test_redrawing(folder: Path, root: Path) -> None:
    for bench in (make_bench(), replace(make_bench("add"), sweep=())):
        store.write(bench, folder)
    written = readme.redraw(folder, root)
    plots = [
        folder / f"nvidia-h200/softmax-{dtype}.{suffix}"
        for dtype in ("float32", "bfloat16")
        for suffix in ("svg", "png")
    ]
    pages = [root / page for page in readme.PAGES]
    assert written == [*plots, *pages]
    contents = [each.read_bytes() for each in written]
    assert [each.read_bytes() for each in readme.redraw(folder, root)] == contents
    for page in pages:
        for part in page.read_text(encoding="utf-8").split("](")[1:]:
            target = page.parent / part.split(")")[0]
            in_project = ROOT / target.resolve().relative_to(root.resolve())
            assert target.exists() or in_project.exists()


def test_redrawing_writes_nothing_where_a_page_has_no_place(
    folder: Path, root: Path
) -> None:
    record = store.write(make_bench(), folder)
    (root / "docs/results.md").write_text("# Title\n")
    before = (root / "README.md").read_bytes()
    with pytest.raises(UsageError, match=r"docs/results\.md: expected one line"):
        readme.redraw(folder, root)
    assert (root / "README.md").read_bytes() == before
    assert {each.suffix for each in record.parent.iterdir()} == {".json", ".txt"}
