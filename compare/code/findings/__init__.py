"""The differences of the two sides in words, with the instructions that prove them.

A rule looks at both sides and returns a sentence, or nothing where it has nothing
certain to say. Every number in a sentence is counted in the code at hand, or in what
the code does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compare.code.findings import (
    accesses,
    arithmetic,
    changes,
    control,
    functions,
    paths,
    reductions,
    resources,
    traffic,
)
from compare.code.findings.evidence import Finding, Look, Subject, are_versions

if TYPE_CHECKING:  # importing the model imports torch and Triton
    from compare.code.kernel_code import KernelCode

__all__ = ["RULES", "Finding", "Rule", "find"]


@dataclass(frozen=True)
class Rule:
    """A rule, with how telling it is."""

    name: str  # it is known by
    topic: str  # memory, launch, control, reduction, math, registers, shared, overhead
    about_one: float  # the weight of what it says of one side: it does more or worse
    about_both: float  # the weight of what it says of both alike
    look: Look  # the rule itself


# First what a kernel must not do; then what every kernel does in some way, and a reader
# wants to know of both sides even if they are alike; then the rest.
RULES = (
    Rule("spills", "registers", 99, 80, resources.spills),
    Rule("float64", "math", 97, 48, arithmetic.float64),
    Rule("tensor cores", "math", 95, 62, arithmetic.tensor_cores),
    Rule("coalescing", "memory", 93, 61, traffic.coalescing),
    Rule("bytes moved", "memory", 91, 72, traffic.bytes_moved),
    Rule("vector width", "memory", 89, 74, accesses.vector_width),
    Rule("merging", "memory", 87, 60, accesses.merging),
    Rule("bank conflicts", "shared", 86, 50, traffic.bank_conflicts),
    Rule("asynchronous copies", "memory", 85, 58, paths.asynchronous_copies),
    Rule("specialisation", "launch", 84.5, 46, control.specialisation),
    Rule("padding", "control", 84, 45, control.padding),
    Rule("reduction", "reduction", 83, 70, reductions.reduction),
    Rule("exp", "math", 82, 68, functions.exponential),
    Rule("erf", "math", 81, 67, functions.error_function),
    Rule("tanh", "math", 80, 66, functions.hyperbolic_tangent),
    Rule("occupancy", "registers", 79, 64, resources.occupancy),
    Rule("division", "math", 63, 44, arithmetic.division),
    Rule("loops", "control", 59, 40, control.loops),
    Rule("address arithmetic", "overhead", 57, 30, resources.address_arithmetic),
    Rule("cache hints", "memory", 42, 28, paths.cache_hints),
    Rule("special functions", "math", 36, 36, functions.special_functions),
    Rule("packed math", "math", 34, 34, arithmetic.packed_math),
    Rule("shared memory", "shared", 32, 32, resources.shared_memory),
    Rule("elements per thread", "launch", 26, 26, resources.elements_per_thread),
    Rule("read-only path", "memory", 24, 24, paths.read_only_path),
    Rule("guards", "control", 22, 22, control.guards),
    Rule("subnormals", "math", 20, 20, arithmetic.subnormals),
)

# Asked only of two kernels in one language, where an edit is what the reader looks for.
CHANGES = (
    Rule("same code", "overhead", 100, 100, changes.same_code),
    Rule("barriers", "reduction", 78, 0, changes.barriers),
    Rule("executed", "overhead", 77, 0, changes.executed),
)


def find(cuda: KernelCode, triton: KernelCode) -> tuple[Finding, ...]:
    """Asks every rule, and sorts the findings: those about one side come first.

    It does more or worse there. Of either kind, the most telling comes first.
    """
    sides = Subject(cuda), Subject(triton)
    rules = (*RULES, *CHANGES) if are_versions(sides) else RULES
    found = []
    for rule in rules:
        if said := rule.look(sides):
            left, right = (tuple(e.index for e in each) for each in said.evidence)
            found.append(
                Finding(
                    topic=rule.topic,
                    text=f"{said.text}.",
                    language=said.language,
                    cuda=left,
                    triton=right,
                    rule=rule.name,
                    side=said.side,
                    weight=rule.about_one if said.side else rule.about_both,
                )
            )
    return tuple(sorted(found, key=lambda each: (each.side is None, -each.weight)))
