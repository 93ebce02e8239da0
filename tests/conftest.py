"""Settings of every test: property tests are repeatable and never fail for being slow."""

import os

import hypothesis

hypothesis.settings.register_profile("rostam", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("rostam")


def pytest_configure() -> None:
    """Refuse a sanitizer run whose core is not the sanitized one (make test-asan)."""
    if os.environ.get("ROSTAM_EXPECT_ASAN") == "1":
        from rostam_py import _core

        if f"{os.sep}asan{os.sep}" not in _core.__file__:
            raise RuntimeError(f"the tests import {_core.__file__}, which is not the sanitized core")
