"""What differs between the two sides, in words, with the instructions that prove it.

A rule looks at both sides and returns a sentence, or nothing where it has nothing
certain to say. Every number in a sentence is counted in the code at hand.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from compare.codegen.classify import Language
from compare.codegen.control_flow import find_loops
from compare.codegen.listing import Instruction, Listing
from compare.codegen.model import KernelCode

_LOG2_E = r"\b0[fx](?:3FB8AA3B){1,2}\b|\b1069066811\b"  # as float, bits, or a pair
_LOG2_E_LOW_PART = "0f32A57060"  # what float32 drops of log2(e), which only expf adds
_NOTEWORTHY_SHARE = 0.15  # of all instructions, before overhead is worth a sentence

_DIVISIONS = {
    "div.rn.f32": "rounded as IEEE 754 asks",
    "div.full.f32": "within 2 ulp",
    "div.approx.f32": "within 2 ulp, for divisors below 2^126",
    "rcp.rn.f32": "a reciprocal, rounded as IEEE 754 asks",
    "rcp.approx.f32": "a reciprocal within 1 ulp",
    "rcp.approx.ftz.f32": "a reciprocal within 1 ulp, subnormals taken for 0",
}


@dataclass(frozen=True)
class Finding:
    """One difference, or one thing worth knowing that the sides have in common.

    Attributes:
        topic: memory, launch, control, reduction, math, registers, shared or overhead.
        text: the sentence.
        language: of the listings that the evidence is in.
        cuda: indices of the instructions of the CUDA side that prove it.
        triton: those of the Triton side.
    """

    topic: str
    text: str
    language: Language
    cuda: tuple[int, ...]
    triton: tuple[int, ...]


Rule = Callable[[KernelCode, KernelCode], Finding | None]


def find(cuda: KernelCode, triton: KernelCode) -> tuple[Finding, ...]:
    """All that the rules have to say, the most telling first."""
    return tuple(found for rule in RULES if (found := rule(cuda, triton)))


def _float64(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    leaks = [code.ptx.in_category("float64") for code in (cuda, triton)]
    parts = [
        f"{name} computes in float64: {_opcodes(leak)}"
        for name, leak in zip(("CUDA", "Triton"), leaks, strict=True)
        if leak
    ]
    return _finding("math", "; ".join(parts), leaks) if parts else None


def _spills(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    parts = []
    for name, code in (("CUDA", cuda), ("Triton", triton)):
        if code.spill_bytes:
            parts.append(
                f"{name} runs out of registers and spills: a thread stores"
                f" {code.spill_store_bytes} bytes to local memory and loads"
                f" {code.spill_load_bytes}"
            )
        elif code.stack_bytes:
            parts.append(
                f"{name} keeps {code.stack_bytes} bytes of a thread in local memory,"
                " though no register is spilled"
            )
    if not parts:
        return None
    return _finding(
        "registers",
        "; ".join(parts),
        [code.sass.in_category("local memory") for code in (cuda, triton)],
        language="sass",
    )


def _access_width(category: str, verb: str) -> Rule:
    def rule(cuda: KernelCode, triton: KernelCode) -> Finding | None:
        accesses = [code.ptx.in_category(category) for code in (cuda, triton)]
        if not all(accesses):
            return None
        widths = [
            _listed(str(width) for width in sorted(_widths(each), reverse=True))
            for each in accesses
        ]
        left, right = (_opcodes(each) for each in accesses)
        if widths[0] == widths[1]:
            text = (
                f"Both {verb} {widths[0]} bytes per instruction and thread:"
                f" CUDA by {left}, Triton by {right}"
            )
        else:
            text = (
                f"CUDA {verb}s {widths[0]} bytes per instruction and thread ({left}),"
                f" Triton {widths[1]} ({right})"
            )
        return _finding("memory", text, accesses)

    return rule


def _read_only_path(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    loads = [code.ptx.in_category("global load") for code in (cuda, triton)]
    cached = [[each for each in side if ".nc" in each.opcode] for side in loads]
    if not all(loads) or bool(cached[0]) == bool(cached[1]):
        return None
    user, other = ("CUDA", "Triton") if cached[0] else ("Triton", "CUDA")
    return _finding(
        "memory",
        f"{user} loads through the read-only data cache (ld.global.nc), which it may"
        f" because nothing writes there during the launch; {other} by plain ld.global",
        [hits or side for hits, side in zip(cached, loads, strict=True)],
    )


def _cache_hints(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    accesses = [
        code.ptx.in_category("global load", "global store") for code in (cuda, triton)
    ]
    hinted = [[each for each in side if _hints(each)] for side in accesses]
    if not all(accesses) or {*map(_hints, hinted[0])} == {*map(_hints, hinted[1])}:
        return None
    parts = [
        f"{name} by {_opcodes(side)}" if side else f"{name} gives none"
        for name, side in zip(("CUDA", "Triton"), hinted, strict=True)
    ]
    return _finding("memory", f"Hints to the caches: {parts[0]}, {parts[1]}", hinted)


def _elements_per_thread(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    def described(code: KernelCode) -> str:
        blocks, threads = _counted(code.blocks, "block"), code.threads_per_block
        return f"{code.elements_per_thread:.3g} ({blocks} of {threads} threads)"

    left, right = described(cuda), described(triton)
    if left == right:
        text = f"Elements of the output for each thread of the launch: {left} on both"
    else:
        text = (
            "Elements of the output for each thread of the launch:"
            f" CUDA {left}, Triton {right}"
        )
    return _finding("launch", text, ([], []))


def _loops(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    loops = [find_loops(code.ptx) for code in (cuda, triton)]
    heads = [
        [code.ptx.instructions[loop.head] for loop in side]
        for code, side in zip((cuda, triton), loops, strict=True)
    ]
    numbers = [len(side) for side in loops]
    if numbers[0] == numbers[1]:
        return None
    if all(numbers):
        text = f"CUDA has {_counted(numbers[0], 'loop')}, Triton {numbers[1]}"
    else:
        looping, straight = ("CUDA", "Triton") if numbers[0] else ("Triton", "CUDA")
        text = (
            f"{looping} has {_counted(max(numbers), 'loop')}, {straight} none: it is"
            " straight-line code, so numbers of instructions do not compare"
        )
    return _finding("control", text, heads)


def _guards(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    accesses = [
        code.ptx.in_category("global load", "global store") for code in (cuda, triton)
    ]
    guarded = [[each for each in side if each.predicate] for side in accesses]
    if not all(accesses) or bool(guarded[0]) == bool(guarded[1]):
        return None
    masking, code = ("Triton", cuda) if guarded[1] else ("CUDA", triton)
    other = "CUDA" if masking == "Triton" else "Triton"
    branches = [each for each in code.ptx.instructions if each.opcode == "bra"]
    conditional = [each for each in branches if each.predicate]
    if not conditional:
        return None
    count = max(len(side) for side in guarded)
    total = len(accesses[0 if masking == "CUDA" else 1])
    evidence = {masking: guarded[0] or guarded[1], other: conditional}
    return _finding(
        "control",
        f"{masking} masks its global accesses by predicates ({count} of {total}"
        f" in PTX); {other} branches around them"
        f" ({_counted(len(conditional), 'branch')})",
        (evidence["CUDA"], evidence["Triton"]),
    )


def _reductions(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    def steps(code: KernelCode) -> list[Instruction]:
        exchanges = [
            each
            for each in code.ptx.in_category("shuffle / vote")
            if re.match(r"shfl\.sync\.(?:bfly|down|up)|redux", each.opcode)
        ]
        return [*exchanges, *code.ptx.in_category("barrier")]

    def described(found: Sequence[Instruction]) -> str:
        stems = Counter(each.opcode.partition(".")[0] for each in found)
        barriers = sum(stems.values()) - stems["shfl"] - stems["redux"]
        parts = [_counted(stems["shfl"], "warp shuffle")]
        if stems["redux"]:
            parts.append(f"{_counted(stems['redux'], 'warp-wide reduction')} (redux)")
        parts.append(_counted(barriers, "block barrier"))
        return _listed(parts)

    found = [steps(code) for code in (cuda, triton)]
    left, right = (described(side) for side in found)
    if left == right:
        return None
    return _finding("reduction", f"CUDA has {left}; Triton has {right}", found)


def _exponential(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    found = [
        [each for each in code.ptx.instructions if each.opcode.startswith("ex2.")]
        for code in (cuda, triton)
    ]
    forms = [
        {_exponential_form(each, code.ptx) for each in side}
        for side, code in zip(found, (cuda, triton), strict=True)
    ]
    if any(len(side) != 1 or None in side for side in forms):
        return None
    left, right = (str(*side) for side in forms)
    if left == right:
        return _finding("math", f"Both compute exp(x) as {left}", found)
    return _finding(
        "math", f"exp(x): CUDA computes {left}; Triton computes {right}", found
    )


def _exponential_form(instruction: Instruction, ptx: Listing) -> str | None:
    """How a base-2 exponential serves to compute exp, or None if that is not clear."""
    origin = _definition(instruction.operands[1], instruction.index, ptx)
    if origin and origin.opcode == "mov.b64":  # half of a pair
        origin = _definition(origin.operands[1], origin.index, ptx)
    if origin is None:
        return None
    if origin.opcode.startswith("mul.") and _mentions(origin, _LOG2_E, ptx):
        return f"{instruction.opcode} of x * log2(e)"
    if origin.opcode.startswith("fma.") and _LOG2_E_LOW_PART in origin.operands:
        return f"{instruction.opcode} after a reduction of x to a small range (expf)"
    return None


def _mentions(instruction: Instruction, constant: str, ptx: Listing) -> bool:
    """Whether the constant is an operand, or the value of a register that is one."""
    sources = [
        _definition(operand, instruction.index, ptx) for operand in instruction.operands
    ]
    texts = [each.text for each in (instruction, *sources) if each]
    return any(re.search(constant, text, re.IGNORECASE) for text in texts)


def _division(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    found = [
        [each for each in code.ptx.instructions if each.opcode in _DIVISIONS]
        for code in (cuda, triton)
    ]
    forms = [{each.opcode for each in side} for side in found]
    if not all(forms) or forms[0] == forms[1]:
        return None
    left, right = (
        _listed(f"{opcode} ({_DIVISIONS[opcode]})" for opcode in sorted(side))
        for side in forms
    )
    return _finding("math", f"Division: CUDA takes {left}; Triton {right}", found)


def _packed_math(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    math = [code.ptx.in_category("fp math") for code in (cuda, triton)]
    packed = [[each for each in side if each.opcode.endswith("x2")] for side in math]
    if not all(math) or bool(packed[0]) == bool(packed[1]):
        return None
    user, other = ("CUDA", "Triton") if packed[0] else ("Triton", "CUDA")
    side = packed[0] or packed[1]
    return _finding(
        "math",
        f"{user} computes on two numbers by one instruction ({_opcodes(side)});"
        f" {other} on one",
        packed,
    )


def _subnormals(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    math = [code.ptx.in_category("fp math") for code in (cuda, triton)]
    flushing = [[each for each in side if ".ftz" in each.opcode] for side in math]
    if not all(math) or bool(flushing[0]) == bool(flushing[1]):
        return None
    user, all_math = ("CUDA", math[0]) if flushing[0] else ("Triton", math[1])
    other = "Triton" if user == "CUDA" else "CUDA"
    count = max(len(side) for side in flushing)
    return _finding(
        "math",
        f"{user} takes subnormal numbers for 0 in {count} of its {len(all_math)}"
        f" floating-point instructions (.ftz); {other} in none",
        flushing,
    )


def _special_functions(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    found = [
        [
            each
            for each in code.ptx.in_category("special function")
            if each.opcode not in _DIVISIONS
        ]
        for code in (cuda, triton)
    ]
    forms = [{each.opcode for each in side} for side in found]
    if forms[0] == forms[1]:
        return None
    left, right = (_opcodes(side) if side else "none" for side in found)
    return _finding("math", f"Special functions: CUDA {left}; Triton {right}", found)


def _registers(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    if cuda.registers == triton.registers:
        return None
    text = f"Registers of a thread: CUDA {cuda.registers}, Triton {triton.registers}"
    return _finding("registers", text, ([], []))


def _shared_memory(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    def described(code: KernelCode) -> str:
        parts = [
            f"{amount} bytes {how}"
            for amount, how in (
                (code.static_shared_bytes, "that the kernel declares"),
                (code.dynamic_shared_bytes, "that the launch asks for"),
            )
            if amount
        ]
        return _listed(parts) if parts else "none"

    if cuda.shared_bytes == triton.shared_bytes == 0:
        return None
    return _finding(
        "shared",
        f"Shared memory of a block: CUDA {described(cuda)}; Triton {described(triton)}",
        [
            code.ptx.in_category("shared load", "shared store")
            for code in (cuda, triton)
        ],
    )


def _overhead(cuda: KernelCode, triton: KernelCode) -> Finding | None:
    found = [
        code.sass.in_category("integer / address", "move", "parameter / constant")
        for code in (cuda, triton)
    ]
    shares = [
        len(side) / len(code.sass.instructions)
        for side, code in zip(found, (cuda, triton), strict=True)
    ]
    if abs(shares[0] - shares[1]) < _NOTEWORTHY_SHARE:
        return None
    return _finding(
        "overhead",
        "Address arithmetic, moves and constants are"
        f" {shares[0]:.0%} of CUDA's SASS and {shares[1]:.0%} of Triton's",
        found,
        language="sass",
    )


RULES: tuple[Rule, ...] = (
    _float64,
    _spills,
    _access_width("global load", "load"),
    _access_width("global store", "store"),
    _elements_per_thread,
    _loops,
    _reductions,
    _exponential,
    _division,
    _packed_math,
    _subnormals,
    _special_functions,
    _shared_memory,
    _registers,
    _read_only_path,
    _cache_hints,
    _guards,
    _overhead,
)


def _finding(
    topic: str,
    text: str,
    evidence: Iterable[Iterable[Instruction]],
    language: Language = "ptx",
) -> Finding:
    cuda, triton = (tuple(each.index for each in side) for side in evidence)
    return Finding(topic, f"{text}.", language, cuda, triton)


def _definition(register: str, before: int, ptx: Listing) -> Instruction | None:
    """The last instruction before this one, as they stand, that writes the register."""
    for instruction in reversed(ptx.instructions[:before]):
        target = instruction.operands[0] if instruction.operands else ""
        if register in re.split(r"[{},|\s]+", target):
            return instruction
    return None


def _widths(accesses: Iterable[Instruction]) -> set[int]:
    return {each.access_bytes for each in accesses}


def _hints(access: Instruction) -> tuple[str, ...]:
    """The parts of an opcode that steer the caches."""
    known = r"L[12]::\w+|c[agsv]|w[bt]|lu"
    return tuple(p for p in access.opcode.split(".") if re.fullmatch(known, p))


def _opcodes(instructions: Iterable[Instruction]) -> str:
    return _listed(sorted({each.opcode for each in instructions}))


def _listed(parts: Iterable[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _counted(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number or 'no'} {noun if number == 1 else plural}"
