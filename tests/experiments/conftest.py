"""Experiments are scripts, loaded from their folders."""

import importlib.util
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="session")
def load_experiment():
    """Return a function that loads experiments/NAME/compare.py."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXPERIMENTS / name / "compare.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
