"""Prints what every kill point did on every platform, and how the chaos run went."""

from __future__ import annotations

import pytest

from channels.faults import POINTS

_AROUND_A_FILE = ("file: uploaded", "file: intent stored", "file: sent", "file: noted")
_FILES_GO = POINTS.index("final-settled")
_ORDER = (*POINTS[:_FILES_GO], *_AROUND_A_FILE, *POINTS[_FILES_GO:])
"""In the order in which a turn passes them."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows: dict[str, dict[str, str]] = {}
    chaos: list[str] = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            recorded = list(getattr(report, "user_properties", ()) or ())
            chaos.extend(str(value) for name, value in recorded if name == "chaos")
            properties = dict(recorded)
            if "kill_point" in properties:
                result = str(properties.get("kill_result", report.outcome.upper()))
                rows.setdefault(str(properties["kill_point"]), {})[str(properties["kill_platform"])] = result
    if rows:
        platforms = sorted({platform for row in rows.values() for platform in row})
        terminalreporter.section("killed between two effects, then restarted")
        terminalreporter.write_line(f"{'point':<20}" + "".join(f"{platform:<30}" for platform in platforms))
        for point, row in sorted(rows.items(), key=lambda item: _ORDER.index(item[0])):
            cells = "".join(f"{row.get(platform, '-'):<30}" for platform in platforms)
            terminalreporter.write_line(f"{point:<20}{cells}")
    if chaos:
        terminalreporter.section("chaos")
        for line in chaos:
            terminalreporter.write_line(line)
