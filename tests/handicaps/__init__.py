"""Pairs of small kernels, clean or with one side handicapped, to test the findings.

A handicap is a file of cuda/ or triton/ whose first line says what is wrong with it;
beside it stands in catalogue.py which clean kernel it is a variant of, and which rule
has to name it. tests/test_code_findings.py compiles each and puts it beside the
other side's clean kernel: the rule must blame the right side, and must blame nobody
where both sides are clean.

A new one is a file and a line in the catalogue.
"""
