"""The category of an instruction, and the bytes that it moves for one thread.

Both tables are ordered: the first row that matches an instruction names its category.
What no row knows is `other`, so that a new instruction shows up instead of hiding.
"""

import functools
import re
from typing import Literal

Language = Literal["ptx", "sass"]

OTHER = "other"
# All that move data to or from memory.
MEMORY_CATEGORIES = (
    "global load",
    "global store",
    "generic memory",
    "atomic",
    "async copy",
    "tensor copy",
    "shared load",
    "shared store",
    "local memory",
)
# In the order of a report.
CATEGORIES = (
    *MEMORY_CATEGORIES,
    "cache hint",
    "shuffle / vote",
    "barrier",
    "mbarrier",
    "fence / wait",
    "tensor core",
    "special function",
    "division",
    "float64",
    "fp math",
    "conversion",
    "compare / select",
    "integer / address",
    "parameter / constant",
    "move",
    "branch / control",
    OTHER,
)

_FLOAT = r"(?:f16|f16x2|bf16|bf16x2|f32|f32x2|tf32)"
_MODIFIERS = r"(?:[\w:]+\.)*"

_PTX_TABLE = (
    ("global load", rf"ldu?\.{_MODIFIERS}global"),
    ("global store", rf"st\.{_MODIFIERS}global"),
    ("shared load", rf"ld\.{_MODIFIERS}shared|ldmatrix|wmma\.load"),
    ("shared store", rf"st\.{_MODIFIERS}shared|stmatrix|wmma\.store"),
    ("local memory", rf"(?:ld|st)\.{_MODIFIERS}local"),
    ("parameter / constant", rf"(?:ld|st)\.{_MODIFIERS}(?:param|const)"),
    ("generic memory", r"(?:ld|st)\."),
    ("atomic", r"(?:atom|red)\."),
    ("mbarrier", r"mbarrier\.|cp\.async\.mbarrier"),
    (
        "fence / wait",
        r"cp\.async\.(?:bulk\.)?(?:commit|wait)|fence|membar|bar\.warp"
        r"|barrier\.cluster|wgmma\.(?:fence|commit|wait)"
        r"|tcgen05\.(?:fence|commit|wait)|griddepcontrol|setmaxnreg",
    ),
    (
        "cache hint",
        r"prefetchu?\.|cp\.async\.bulk\.prefetch|createpolicy|applypriority|discard",
    ),
    ("tensor copy", r"cp\.(?:reduce\.)?async\.bulk\.tensor"),
    ("async copy", r"cp\."),
    ("shuffle / vote", r"shfl|vote|match|redux|activemask|elect"),
    ("barrier", r"bar\.|barrier\."),
    ("tensor core", r"mma\.|wmma\.mma|wgmma\.mma|tcgen05\."),
    ("move", r"mov\."),
    ("float64", r"\w+\.(?:[\w:]+\.)*f64"),
    ("special function", r"(?:ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh)\."),
    ("division", rf"div\.{_MODIFIERS}{_FLOAT}"),
    (
        "fp math",
        r"(?:add|sub|mul|fma|mad|max|min|neg|abs|copysign)"
        rf"\.{_MODIFIERS}{_FLOAT}(?: |$)",
    ),
    ("conversion", rf"cvt\.{_MODIFIERS}(?:{_FLOAT}|e4m3\w*|e5m2\w*)"),
    ("compare / select", r"(?:setp?|selp|slct|testp)\.|(?:and|or|xor|not)\.pred"),
    (
        "integer / address",
        r"(?:add|addc|sub|subc|mul|mul24|mad|mad24|madc|sad|div|rem|abs|neg|min|max|popc"
        r"|clz|bfind|fns|brev|bfe|bfi|bmsk|szext|dp[24]a|shl|shr|shf|and|or|xor|not|cnot"
        r"|lop3|prmt|cvta?|isspacep|mapa|getctarank)\b",
    ),
    (
        "branch / control",
        r"(?:bra|brx|call|ret|exit|trap|brkpt|nanosleep|pmevent)\b",
    ),
)

_SASS_TABLE = (
    ("global load", r"LDG\b"),
    ("global store", r"STG\b"),
    ("shared load", r"(?:LDS|LDSM)\b"),
    ("shared store", r"(?:STS|STSM)\b"),
    ("local memory", r"(?:LDL|STL)\b"),
    ("parameter / constant", r"(?:LDC|ULDC|LDCU)\b"),
    ("generic memory", r"(?:LD|ST)\b"),
    ("atomic", r"(?:ATOM|ATOMG|ATOMS|RED|REDG|REDAS|UBLKRED|UTMAREDG)\b"),
    ("tensor copy", r"(?:UTMALDG|UTMASTG)\b"),
    ("async copy", r"(?:LDGSTS|UBLKCP)\b"),
    ("mbarrier", r"(?:SYNCS|ARRIVES)\b"),
    (
        "fence / wait",
        r"(?:LDGDEPBAR|DEPBAR|MEMBAR|ERRBAR|CGAERRBAR|FENCE|WARPSYNC|WARPGROUP|UCGABAR_\w+"
        r"|NANOSLEEP|ACQBULK|PREEXIT|UTMACMDFLUSH|USETMAXREG)\b",
    ),
    ("cache hint", r"(?:CCTLL?|UTMACCTL|UTMAPF|UBLKPF)\b"),
    ("shuffle / vote", r"(?:SHFL|VOTEU?|MATCH|REDUX|CREDUX|ELECT)\b"),
    ("barrier", r"BAR\b"),
    ("tensor core", r"(?:[HIDBQO]MMA|[HIQB]GMMA|UTC\w+|LDTM|STTM)\b"),
    # The assembler also uses arithmetic units to move a value or a constant.
    ("move", r"HFMA2\S* U?R\w+, -RZ, RZ, |IMAD\.MOV|FADD \w+, -RZ, \w+$"),
    ("conversion", r"HADD2\.F32|U?(?:F2F\.(?!.*F64)|F2FP|F2I|I2F|I2FP|I2I|FRND)\b"),
    ("float64", r"D(?:ADD|MUL|FMA|SETP|MNMX)\b|MUFU\.\w+64H|\w+\.(?:\w+\.)*F64"),
    ("special function", r"MUFU\b"),
    (
        "fp math",
        r"(?:U?F(?:ADD|MUL|FMA|MNMX)[23]?|FCHK|FSWZADD|H(?:ADD|MUL|FMA|MNMX)2|FHFMA)\b",
    ),
    (
        "compare / select",
        r"(?:U?ISETP|U?FSETP|HSETP2|U?SEL|U?FSEL|U?PLOP3|P2R|R2P|FSET|HSET2)\b",
    ),
    (
        "move",
        r"(?:U?MOV|CS2UR|CS2R|S2R|S2UR|R2UR|UR2R|MOVM|B2R|R2B|UP2UR|UR2UP)\b",
    ),
    (
        "integer / address",
        r"(?:U?IADD3?|U?IMAD|U?LEA|U?LOP3?|U?SHF|U?SHL|U?SHR|U?IABS|U?VI(?:ADD|MNMX)3?"
        r"|VIADDMNMX|U?IMNMX|U?PRMT|U?BMSK|U?SGXT|U?POPC|U?FLO|U?BREV|IDP|ISCADD)\b",
    ),
    (
        "branch / control",
        r"(?:BRA|BRX|BRXU|BSSY|BSYNC|BREAK|BMOV|CALL|RET|EXIT|JMP|JMX|KILL|NOP|YIELD"
        r"|BPT)\b",
    ),
)

_TABLES = {
    language: tuple((name, re.compile(pattern)) for name, pattern in table)
    for language, table in (("ptx", _PTX_TABLE), ("sass", _SASS_TABLE))
}

_PTX_ACCESS = re.compile(r"(?:\.v(\d))?\.[busf]f?(\d+)(?:x(\d))?$")
_MATRIX_ACCESS = re.compile(r"\.x(\d)\b|\.M88\.(\d)\b")
_SASS_WIDTH = re.compile(r"\.[US]?(8|16|64|128|256)\b")


@functools.cache
def category_of(language: Language, text: str) -> str:
    """The category of an instruction, given as opcode, blank, operands."""
    for name, pattern in _TABLES[language]:
        if pattern.match(text):
            return name
    return OTHER


def is_copy_to_global(opcode: str) -> bool:
    """Whether an asynchronous copy is one from shared to global memory."""
    return opcode.startswith("UTMASTG") or ".global.shared" in opcode


def access_bytes_of(
    language: Language, opcode: str, operands: tuple[str, ...], category: str
) -> int:
    """Bytes that one thread moves by one memory instruction; 0 for any other.

    Also 0 where one thread moves for all what the instruction does not tell.
    """
    if category not in MEMORY_CATEGORIES or category in ("atomic", "tensor copy"):
        return 0
    if opcode.startswith("UBLKCP"):
        return 0
    if opcode.startswith(("ldmatrix", "stmatrix", "LDSM", "STSM")):
        # A warp moves matrices of 8 x 8 two-byte elements, 4 bytes for every thread.
        found = _MATRIX_ACCESS.search(opcode)
        return 4 * int(found[1] or found[2]) if found else 4
    if language == "sass":
        widths = _SASS_WIDTH.findall(opcode)
        return int(widths[-1]) // 8 if widths else 4
    if category == "async copy":
        size = operands[2] if len(operands) > 2 else ""
        return int(size, 0) if re.fullmatch(r"0x[0-9a-f]+|\d+", size) else 0
    found = _PTX_ACCESS.search(opcode)
    return int(found[1] or 1) * int(found[2]) * int(found[3] or 1) // 8 if found else 0
