"""What the sides of a pair are asked, and how their answers are judged."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from together import in_one_test
from torch import Tensor

from compare.errors import UnavailableError, UsageError
from compare.judge.acceptance import Expected
from compare.pairs import (
    gpu_mode,
    inline_cuda,
    judging,
    kernelbench,
    question,
    questions_task,
    sandbox,
)
from compare.pairs.calls import Call, Outcome
from compare.pairs.judging import RACES, SAME_BITS, Judged
from compare.pairs.question import (
    AS_GIVEN,
    LARGE,
    OFFSET,
    OTHER_INPUTS,
    SPECIALS,
    STRIDED,
    Asked,
    Problem,
    Question,
)

X = torch.randn(8, 33, generator=torch.Generator().manual_seed(0))


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _asked(
    name: str,
    check: str,
    *,
    x: Tensor = X,
    layout: str = "contiguous",
    order: str = "forward",
    function: Callable[..., Tensor] = _softmax,
) -> Asked:
    expected = Expected(function(x.double()), function(x))
    return Asked(Call(name, (x,), layout, order), (expected,), (None,), check)


def _question(*calls: Asked, is_deterministic: bool = True) -> Question:
    return Question(calls, (), ("x",), is_deterministic, torch.float32)


def _question_of_softmax() -> Question:
    return _question(
        _asked("other values", OTHER_INPUTS, x=-X),
        *(_asked(AS_GIVEN, "", order=order) for order in ("forward", "reverse")),
        _asked("strided inputs", STRIDED, layout="transposed"),
    )


def _answers(
    asked_of: Question, function: Callable[[Tensor], Tensor] = _softmax
) -> list[Outcome]:
    return [Outcome((function(each.call.inputs[0]),)) for each in asked_of.calls]


def _judge(function: Callable[[Tensor], Tensor]) -> Judged:
    asked_of = _question_of_softmax()
    return judging.judge(asked_of, _answers(asked_of, function), "cpu")


def _judge_one(result: Tensor, exact: Tensor, own: Tensor | None = None) -> str:
    """The problem of a result, of which this is the exact value."""
    own = exact if own is None else own
    exact = exact.double() if exact.is_floating_point() else exact
    asked = Asked(Call(AS_GIVEN, (X,)), (Expected(exact, own),), (None,))
    outcome = Outcome((result,))
    return judging.judge(_question(asked), [outcome], "cpu").parity.problem


def test_a_right_side_passes_everything() -> None:
    judged = _judge(lambda x: x.exp() / x.exp().sum(-1, keepdim=True))
    assert judged.parity.passed
    assert judged.parity.error.max <= judged.parity.allowed.max
    assert [(name, each.text) for name, each in judged.checks.items()] == [
        (OTHER_INPUTS, "passed"),
        (STRIDED, "passed"),
        (RACES, "clean in 2 orders"),
        (SAME_BITS, "yes"),
    ]


def test_to_write_to_an_input_is_told_by_the_reference() -> None:
    given = _asked(AS_GIVEN, "")
    outcome = Outcome(problem="mine.py:3: input x was written to", writes_to_input=True)
    judged = judging.judge(_question(given), [outcome], "cpu")
    more = "; the reference does not write to its input"
    assert judged.parity.problem == outcome.problem + more
    without = judging.judge(
        _question(dataclasses.replace(given, expected=())), [outcome], "cpu"
    )
    assert without.parity.problem == outcome.problem


def test_a_lower_precision_fails() -> None:
    judged = _judge(lambda x: _softmax(x.half()).float())
    assert "the largest error is" in judged.parity.problem
    assert judged.checks[STRIDED].problem.startswith("on strided inputs: the largest")
    assert judged.checks[SAME_BITS].passed


@pytest.mark.parametrize("n_terms", [1024, 16384])
def test_a_long_sum_in_order_passes_and_one_of_tf32_fails(n_terms: int) -> None:
    x, y = torch.randn(2, 16, n_terms, generator=torch.Generator().manual_seed(0))
    expected = Expected(
        (x.double() * y.double()).sum(1), (x * y).sum(1), False, n_terms
    )
    asked_of = _question(Asked(Call(AS_GIVEN, (x,)), (expected,), (None,)))
    total = torch.zeros(16)
    for each in (x * y).T:
        total = total + each
    rounded = ((x.view(torch.int32) + 4096) & ~8191).view(torch.float32)
    right, wrong = (
        judging.judge(asked_of, [Outcome((result,))], "cpu").parity
        for result in (total, (rounded * y).sum(1))
    )
    assert right.passed
    assert "error" in wrong.problem


def test_results_in_float64_of_float32_are_of_a_wrong_dtype() -> None:
    problem = "the dtype is torch.float64, not torch.float32"
    assert _judge(lambda x: _softmax(x.double())).parity.problem == problem


@in_one_test("result", "exact", "problem")
@pytest.mark.parametrize(
    ("result", "exact", "problem"),
    [
        (torch.ones(3), torch.ones(2), "the shape is (3,), not (2,)"),
        (torch.tensor(1.0), torch.tensor(1.0), ""),
        (torch.tensor(2.0), torch.tensor(1.0), "the largest error is"),
        (torch.empty(0, 4), torch.empty(0, 4), ""),
        (torch.tensor([True, False]), torch.tensor([True, False]), ""),
        (
            torch.tensor([True, False]),
            torch.tensor([True, True]),
            "1 of 2 elements are wrong (at [1]: False, not True)",
        ),
        (torch.arange(4), torch.arange(4), ""),
        (
            torch.tensor([[1, 3]]),
            torch.tensor([[1, 2]]),
            "1 of 2 elements are wrong (at [0, 1]: 3, not 2)",
        ),
        (torch.tensor(3), torch.tensor(2), "1 of 1 element are wrong (3, not 2)"),
        (
            torch.tensor([1.0, 2.0]),
            torch.tensor([1.0, math.nan]),
            "1 of 2 elements should be NaN and are not",
        ),
        (
            torch.tensor([1.0, -math.inf]),
            torch.tensor([1.0, 2.0]),
            "1 of 2 elements are -inf and should not be",
        ),
        (
            torch.tensor([1.0, math.nan]),
            torch.tensor([1.0, 2.0]),
            "1 of 2 elements are NaN, as if they were never written",
        ),
        (
            torch.tensor([1, 2**31 - 1], dtype=torch.int32),
            torch.tensor([1, 2], dtype=torch.int32),
            "1 of 2 elements are the largest integer, as if they were never written",
        ),
        (
            torch.full((2,), 0x7FA5, dtype=torch.int16).view(torch.bfloat16),
            torch.ones(2, dtype=torch.bfloat16),
            "2 of 2 elements were not written",
        ),
        (
            torch.full((2,), 0x7FA57FA5, dtype=torch.int32),
            torch.full((2,), 0x7FA57FA5, dtype=torch.int32),
            "",
        ),
    ],
)
def test_one_result(result: Tensor, exact: Tensor, problem: str) -> None:
    found = _judge_one(result, exact)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_whole_numbers_of_either_yardstick_are_right() -> None:
    exact, own = torch.tensor([1, 2]), torch.tensor([1, 3])
    assert _judge_one(own, exact, own) == ""


def test_float64_is_held_to_its_own_precision() -> None:
    exact = X.double().exp()
    assert _judge_one(exact * (1 + 1e-15), exact) == ""
    assert "error" in _judge_one(exact * (1 + 1e-9), exact)


def test_the_worse_of_two_outputs_of_mixed_dtypes_is_named() -> None:
    expected = tuple(
        Expected(each.double(), each) for each in (X, X.to(torch.bfloat16))
    )
    asked_of = _question(Asked(Call(AS_GIVEN, (X,)), expected, (None, None)))
    for outputs, problem in (
        ((X, X.to(torch.bfloat16)), ""),
        ((X, 2 * X.to(torch.bfloat16)), "output 2: the largest error"),
        ((X,), "it returned 1 tensor, not 2"),
    ):
        judged = judging.judge(asked_of, [Outcome(outputs)], "cpu")
        assert judged.parity.problem.startswith(problem)
        assert judged.parity.passed == (not problem)


def test_other_bits_in_another_order() -> None:
    asked_of = _question_of_softmax()
    outcomes = _answers(asked_of)
    changed = outcomes[2].outputs[0].clone()
    changed[0, :3] = changed[0, :3].nextafter(torch.ones(3))
    outcomes[2] = Outcome((changed,))
    judged = judging.judge(asked_of, outcomes, "cpu")
    sentence = "3 of 264 elements differ between forward and reverse order"
    assert judged.parity.passed
    assert judged.checks[SAME_BITS].problem == sentence
    may_differ = dataclasses.replace(asked_of, is_deterministic=False)
    check = judging.judge(may_differ, outcomes, "cpu").checks[SAME_BITS]
    assert (check.passed, check.mood, check.note) == (True, "unsure", sentence)


def test_a_wrong_result_in_another_order() -> None:
    asked_of = _question_of_softmax()
    outcomes = _answers(asked_of)
    outcomes[2] = Outcome((2 * outcomes[2].outputs[0],))
    problem = judging.judge(asked_of, outcomes, "cpu").parity.problem
    assert problem.startswith("in reverse order: the largest error")


def test_a_result_that_is_kept_from_an_earlier_call() -> None:
    kept: list[Tensor] = []

    def stale(x: Tensor) -> Tensor:
        kept.append(_softmax(x))
        return kept[0]

    problem = _judge(stale).parity.problem
    assert problem.startswith("it returned the result of an earlier call: ")


def test_a_constant_result_is_wrong_and_not_stale() -> None:
    assert _judge(torch.zeros_like).parity.problem.startswith("the largest error")


def test_refusals_are_faults_of_the_call_as_given_alone() -> None:
    asked_of = _question_of_softmax()
    refused = Outcome(refusal="mine.py:3: ValueError: contiguous only")
    outcomes = _answers(asked_of)
    outcomes[3] = refused
    judged = judging.judge(asked_of, outcomes, "cpu")
    check = judged.checks[STRIDED]
    assert (check.text, check.mood, check.passed) == ("refused", "unsure", True)
    assert check.note == f"on strided inputs: {refused.refusal}"
    judged = judging.judge(asked_of, [refused] * 4, "cpu")
    assert judged.parity.problem == refused.refusal
    assert judged.checks.keys() == {OTHER_INPUTS, STRIDED}


def test_faults_while_it_ran() -> None:
    asked_of = _question_of_softmax()
    race = Outcome(problem="mine.cu:12: two threads write the same element")
    outcomes = _answers(asked_of)
    outcomes[2] = outcomes[3] = race
    judged = judging.judge(asked_of, outcomes, "emulator")
    assert judged.parity.passed
    assert judged.checks[RACES].text == "fault in 1 of 2 orders"
    assert judged.checks[RACES].problem == f"in reverse order: {race.problem}"
    assert judged.checks[STRIDED].problem == f"on strided inputs: {race.problem}"
    outcomes[1] = race
    judged = judging.judge(asked_of, outcomes, "emulator")
    assert judged.parity.problem == race.problem
    assert math.isnan(judged.parity.error.max)


@pytest.mark.parametrize(
    ("elsewhere", "note"),
    [
        (1.0, ""),
        (math.nan, "on inputs with a NaN: 3 of 4 elements that do not depend on"),
    ],
)
def test_specials_where_they_are_doubtful(elsewhere: float, note: str) -> None:
    x = torch.ones(4)
    exact = torch.tensor([1.0, math.nan, 1.0, 1.0])
    doubtful = torch.tensor([True, False, True, True])
    asked = Asked(
        Call("inputs with a NaN", (x,)),
        (Expected(exact.double(), exact),),
        (doubtful,),
        SPECIALS,
    )
    asked_of = _question(_asked(AS_GIVEN, "", x=x), asked)
    for at_it, is_right in ((math.nan, True), (1.0, False)):
        result = torch.full((4,), elsewhere)
        result[1] = at_it
        outcomes = [Outcome((_softmax(x),)), Outcome((result,))]
        check = judging.judge(asked_of, outcomes, "cpu").checks[SPECIALS]
        assert check.passed == is_right
        if is_right:
            assert check.note.startswith(note)
            assert bool(check.note) == bool(note)
        else:
            assert check.problem == (
                "on inputs with a NaN: 1 of 4 elements should be NaN and are not"
            )


def test_without_a_reference_both_are_compared() -> None:
    asked_of = _question_of_softmax()
    asked_of = dataclasses.replace(
        asked_of,
        calls=tuple(
            dataclasses.replace(each, expected=(), doubtful=())
            for each in asked_of.calls
        ),
    )
    right = _answers(asked_of)
    where = ("emulator", "interpreter")
    both = judging.agree(asked_of, right, right, where)
    assert [each.parity.ran_on for each in both] == list(where)
    for judged in both:
        assert judged.parity.passed
        assert all(check.passed for check in judged.checks.values())
    wrong = _answers(asked_of, lambda x: _softmax(x.half()).float())
    for judged in judging.agree(asked_of, wrong, right, where):
        assert judged.parity.problem.startswith("no reference: the two are compared")
    crashed = [Outcome(problem="mine.cu: crashed")] * 4
    left, other = judging.agree(asked_of, crashed, right, where)
    assert left.parity.problem == "mine.cu: crashed"
    assert other.parity.problem.startswith("there is no reference, and no result")
    assert other.checks[SAME_BITS].passed


def _ask(reference: str, inputs: str = "randn(8, 33)") -> Question:
    """Asks in this process, since nothing of it comes from a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sandbox, "run", lambda _, request, **__: questions_task.answer(request)
        )
        return question.ask(Problem("options", inputs=inputs, reference=reference))


def _exact(asked: Asked) -> Outcome:
    """The answer that could not be better."""
    return Outcome(tuple(each.exact.to(each.torch.dtype) for each in asked.expected))


def test_options() -> None:
    asked_of = _ask("lambda x, w: x @ w", "randn(8, 33), randn(33, 5)")
    assert asked_of.names == ("x", "w")
    assert asked_of.dtype == torch.float32
    assert asked_of.has_reference
    given = asked_of.as_given
    x, w = given.call.inputs
    assert torch.equal(given.expected[0].exact, x.double() @ w.double())
    assert given.expected[0].n_terms == 33
    checks = [each.check for each in asked_of.calls]
    assert checks == [
        *(OTHER_INPUTS, "", "", "", "", OFFSET, STRIDED),
        *(SPECIALS, SPECIALS, SPECIALS, LARGE),
    ]
    kept = asked_of.in_orders(("forward", "reverse")).calls
    assert len(kept) == len(checks) - 2
    outcomes = list(map(_exact, asked_of.calls))
    judged = judging.judge(asked_of, outcomes, "cpu")
    assert judged.parity.passed
    assert all(each.mood == "good" for each in judged.checks.values())


def test_a_naive_softmax_overflows_on_large_values() -> None:
    asked_of = _ask("torch.softmax:dim=-1", "1 + rand(8, 33) / 1e4")
    naive = _answers(asked_of, lambda x: x.exp() / x.exp().sum(-1, keepdim=True))
    judged = judging.judge(asked_of, naive, "cpu")
    assert judged.parity.passed
    assert "NaN" in judged.checks[LARGE].problem
    # Flash attention's way: more is lost of large inputs, and that is no fault.
    scale = math.log2(math.e)

    def by_exp2(x: Tensor) -> Tensor:
        powers = (x * scale - x.amax(-1, keepdim=True) * scale).exp2()
        return powers / powers.sum(-1, keepdim=True)

    judged = judging.judge(asked_of, _answers(asked_of, by_exp2), "cpu")
    assert judged.checks[LARGE].passed


def test_whoever_skips_what_is_multiplied_by_zero_is_right() -> None:
    # Row 3 of 4 is masked away by a factor, which makes NaN of NaN.
    mask = "(arange(8) < 4).to(x.dtype).view(8, 1)"
    asked_of = _ask(f"lambda x: (x * {mask}).sum(0)", "randn(8, 5)")
    skipping = _answers(asked_of, lambda x: x[:4].sum(0))
    following = _answers(
        asked_of,
        lambda x: (x * (torch.arange(8) < 4).to(x.dtype).view(8, 1)).sum(0),
    )
    for outcomes in (skipping, following):
        check = judging.judge(asked_of, outcomes, "cpu").checks[SPECIALS]
        assert (check.text, check.note) == ("passed", "")


def test_a_reference_that_insists_on_its_dtype() -> None:
    asked_of = _ask("lambda x: (x.float() * 2).to(torch.float32)")
    assert asked_of.notes == (
        "the reference does not compute in float64, so its own results are taken for "
        "exact, and large values are left out",
    )
    judged = judging.judge(asked_of, _answers(asked_of, lambda x: x + x), "cpu")
    assert judged.parity.passed
    assert LARGE not in judged.checks


@pytest.mark.parametrize(
    ("inputs", "reference", "sentence"),
    [
        ("rand(8", "", "--inputs: SyntaxError"),
        ("3", "", "there is no tensor among the inputs"),
        ("rand(3), dict()", "", "input 2 is of class dict"),
        ("rand(3)", "torch.sofmax", "--reference: torch.sofmax is no function"),
        ("rand(3)", "lambda x, y: x", "--reference: missing a required argument"),
        ("rand(3)", "lambda x: 5", "the reference returns int"),
        ("rand(3)", "lambda x: x @ ones(2)", "--reference: RuntimeError: "),
    ],
)
def test_words_that_make_no_sense(inputs: str, reference: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        _ask(reference, inputs)
    assert str(caught.value).startswith(sentence)


def test_results_that_cannot_be_judged() -> None:
    with pytest.raises(UnavailableError, match="complex64 cannot be judged"):
        _ask("lambda x: x.to(torch.complex64)")


PAIR = '''"""Scales rows.

By two.
"""
import torch
CASES = [{"rows": 3}]
VARIATIONS = ("offset",)
deterministic = False
def inputs(generator, rows=5):
    return torch.randn(rows, 7, generator=generator), 2
def reference(x, factor):
    x *= factor
    return x if len(x) > 0 else 1 / 0
'''


def test_a_description(tmp_path: Path) -> None:
    file = tmp_path / "pair.py"
    file.write_text(PAIR, "utf-8")
    asked_of = question.ask(Problem("description", file))
    assert not asked_of.is_deterministic
    assert asked_of.modified == (0,)
    assert [each.call.name for each in asked_of.calls] == [
        *(AS_GIVEN, "offset inputs", "inputs of rows=3")
    ]
    x, factor = asked_of.as_given.call.inputs
    assert torch.equal(asked_of.as_given.expected[0].torch, x * factor)
    file.write_text(PAIR.replace("rows=5", "rows=0"), "utf-8")
    with pytest.raises(sandbox.ForeignCodeError, match=r"^pair.py:13: ZeroDivision"):
        question.ask(Problem("description", file))


KERNELBENCH = """
import torch
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = torch.nn.Linear(n, 4)
    def forward(self, x):
        return self.linear(x)
batch, width = 6, 8
shape = (batch, width)
def get_inputs():
    return [torch.rand(shape)]
def get_init_inputs():
    return [8]
"""
SOLUTION = '''
from torch.utils.cpp_extension import load_inline
HEAD = "#include <torch/extension.h>"
source = """
__global__ void kernel() {}
"""
module = load_inline(
    name="mine", cpp_sources=HEAD + ";", cuda_sources=[source], functions=["f", "g"]
)
class ModelNew:
    pass
'''


def test_kernelbench(tmp_path: Path) -> None:
    problem, solution = tmp_path / "problem.py", tmp_path / "solution.py"
    problem.write_text(KERNELBENCH, "utf-8")
    solution.write_text(SOLUTION, "utf-8")
    assert kernelbench.is_problem(problem)
    assert not kernelbench.is_problem(solution)
    assert kernelbench.is_solution(solution)
    assert kernelbench.inline_sources(solution) == [
        kernelbench.InlineSource(
            cuda_source="\n__global__ void kernel() {}\n",
            functions=("f", "g"),
            line=4,
            cpp_source="#include <torch/extension.h>;",
            cpp_line=3,
        )
    ]
    asked_of = question.ask(Problem("kernelbench", problem))
    (x,) = asked_of.as_given.call.inputs
    assert x.shape == (6, 8)
    smaller = Problem("kernelbench", problem, constants={"batch": "1 + 1"})
    (x,) = question.ask(smaller).as_given.call.inputs
    assert x.shape == (2, 8)
    assert asked_of.as_given.expected[0].exact.dtype == torch.float64
    assert not asked_of.notes


def test_load_inline_of_what_is_put_together_at_run_time(tmp_path: Path) -> None:
    file = tmp_path / "solution.py"
    file.write_text('load_inline(cuda_sources=open("f").read())\n', "utf-8")
    with pytest.raises(UnavailableError, match=r"^solution.py:1: load_inline"):
        kernelbench.inline_sources(file)
    file.write_text('import torch\nload("m", sources=["a.cu"])\n', "utf-8")
    with pytest.raises(UnavailableError, match=r"^solution.py:2: cpp_extension.load,"):
        kernelbench.inline_sources(file)


INLINE = """\
text = '''
void f() {{}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("g", {}); }}
'''
load_inline("m", [""], [text])
"""


def test_what_load_inline_binds(tmp_path: Path) -> None:
    file = tmp_path / "solution.py"
    file.write_text(INLINE.format("&f"), "utf-8")
    found = inline_cuda.read(file)
    assert found.wrappers is None
    assert [each.function.python_name for each in found.targets] == ["g"]
    file.write_text(INLINE.format("[] { f(); }"), "utf-8")
    with pytest.raises(UnavailableError, match=r"^solution.py:1: load_inline binds no"):
        inline_cuda.read(file)
    file.write_text(2 * INLINE.format("&f"), "utf-8")
    with pytest.raises(UnavailableError, match=r"^solution.py:6: only one call"):
        inline_cuda.read(file)


def test_weights_of_a_solution_are_those_of_the_problem() -> None:
    class Model(torch.nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(n, 2)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.linear(x)
            return result

    class ModelNew(Model):
        def __init__(self, n: int) -> None:
            self.drawn = torch.rand(3)
            super().__init__(n)

    class _Module:
        pass

    module = _Module()
    vars(module).update(Model=Model, ModelNew=ModelNew, get_init_inputs=lambda: [4])
    x = torch.rand(3, 4)
    function = kernelbench.callable_of(module, module, seed=1)  # type: ignore[arg-type]
    model = kernelbench.make_model(module, seed=1)  # type: ignore[arg-type]
    assert torch.equal(function(x), model(x))


REFERENCE = """
import torch
from common import scale
def generate_input(size, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.randn(size, device="cuda", generator=generator)
    return x, torch.ones(size, device="cuda")
def ref_kernel(data):
    x, y = data
    return scale(x) + y
"""
TASK = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "common.py", "source": "../common.py"}
tests:
  - {"size": 5, "seed": 7}
  - {"size": 9, "seed": 8}
"""


def test_gpu_mode(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    folder = tmp_path / "problem"
    folder.mkdir()
    (tmp_path / "common.py").write_text("def scale(x):\n    return 2 * x\n", "utf-8")
    (folder / "reference.py").write_text(REFERENCE, "utf-8")
    assert gpu_mode.is_folder(folder)
    assert not gpu_mode.is_folder(tmp_path)
    with pytest.raises(UsageError, match=r"no task\.yml"):
        question.ask(Problem("gpu-mode", folder))
    (folder / "task.yml").write_text(TASK, "utf-8")
    asked_of = question.ask(Problem("gpu-mode", folder))
    assert asked_of.is_packed
    names = [each.call.name for each in asked_of.calls]
    assert names[0] == "other values"
    assert names[-1] == "inputs of size=9, seed=8"
    x, y = asked_of.as_given.call.inputs
    drawn = torch.randn(5, generator=torch.Generator().manual_seed(7))
    assert torch.equal(x, drawn)
    assert torch.equal(asked_of.as_given.expected[0].exact, 2 * x.double() + y.double())
