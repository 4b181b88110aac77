import torch


@torch.no_grad()
def verbose_allclose(received: torch.Tensor, expected: torch.Tensor, rtol=1e-05, atol=1e-08, max_print=5):
    if received.shape != expected.shape:
        return False, [f"SIZE MISMATCH. received shape: {received.shape}, expected shape: {expected.shape}"]
    wrong = (received.float() - expected.float()).abs() > atol + rtol * expected.float().abs()
    wrong |= received.isnan() != expected.isnan()
    count = int(wrong.sum())
    if count == 0:
        return True, []
    lines = [f"Number of mismatched elements: {count}"]
    for index in wrong.nonzero()[:max_print].tolist():
        lines.append(f"ERROR AT {tuple(index)}: {received[tuple(index)]} {expected[tuple(index)]}")
    return False, lines


def match_reference(data, output, reference, rtol=1e-05, atol=1e-08):
    expected = reference(data)
    good, reasons = verbose_allclose(output, expected, rtol=rtol, atol=atol)
    if not good:
        return False, "mismatch found! custom implementation doesn't match reference: " + " ".join(reasons)
    return True, ""


def make_match_reference(reference, **kwargs):
    def wrapped(data, output):
        return match_reference(data, output, reference=reference, **kwargs)

    return wrapped


class DeterministicContext:
    def __enter__(self):
        self.deterministic = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        return self

    def __exit__(self, *exc):
        torch.use_deterministic_algorithms(self.deterministic)
