"""Loads what the tests have in common, where tests are run."""

from __future__ import annotations

import importlib

import pytest

pytest.register_assert_rewrite("common")


def pytest_configure(config: pytest.Config) -> None:
    """Loads hooks and fixtures, unless this process leaves all tests to workers.

    It would import torch for nothing, while the workers wait for it.
    """
    if not _only_hands_out(config):
        config.pluginmanager.register(importlib.import_module("common"), "common")


def _only_hands_out(config: pytest.Config) -> bool:
    """Whether xdist runs the tests of this process in others."""
    is_worker = hasattr(config, "workerinput")
    hands_out = config.getoption("dist", "no") != "no" and not is_worker
    # Profiles of hypothesis, which say what inputs to try, are registered there.
    asks = config.getoption("hypothesis_profile", None) or config.option.collectonly
    return hands_out and not asks
