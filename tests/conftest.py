"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Here and not beside its tests: when several processes run them, the one that prints knows this file only.
pytest_plugins = ("tests.recovery.summary",)

# Machines are noisy: an example that is slow once is no failure. CI draws the same examples every time.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
